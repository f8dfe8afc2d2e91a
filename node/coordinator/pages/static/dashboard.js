// Ages and countdowns are counted here, so that they go on when the connection to the coordinator does not.
(() => {
  const begun = document.querySelector('meta[name="server-now"]');
  const ahead = begun ? Number(begun.content) - Date.now() / 1000 : 0;

  function span(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
    return `${Math.floor(whole / 86400)} days`;
  }

  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function tick() {
    const now = Date.now() / 1000 + ahead;
    for (const each of document.querySelectorAll("[data-at]")) {
      const at = Number(each.dataset.at);
      say(each, at > 0 ? `as of ${span(now - at)} ago` : "not known yet");
      each.classList.toggle("stale", at > 0 && now - at > 60);
    }
    for (const each of document.querySelectorAll("[data-since]")) {
      const since = Number(each.dataset.since);
      say(each, since > 0 ? `${span(now - since)} ago` : "—");
    }
    for (const each of document.querySelectorAll("[data-until]")) {
      const until = Number(each.dataset.until);
      say(each, until > now ? `at most ${span(until - now)} more` : until > 0 ? "overdue" : "");
    }
  }

  function paint() {
    const wish = localStorage.getItem("theme") || "auto";
    if (globalThis.Quasar) Quasar.Dark.set(wish === "auto" ? "auto" : wish === "dark");
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${wish}`;
  }

  document.addEventListener("click", (event) => {
    if (event.target.id !== "theme") return;
    const order = ["auto", "dark", "light"];
    const now = order.indexOf(localStorage.getItem("theme") || "auto");
    localStorage.setItem("theme", order[(now + 1) % order.length]);
    paint();
  });
  addEventListener("load", () => {
    const wait = setInterval(() => {
      if (!document.getElementById("theme")) return;
      clearInterval(wait);
      const here = document.querySelector("nav [aria-current]");
      if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.clientWidth / 2 + here.clientWidth / 2;
      paint();
      tick();
      new MutationObserver(tick).observe(document.body, { childList: true, subtree: true }); // rows made anew
    }, 50);
  });
  setInterval(tick, 1000);

  // An order to the API. The token stands in a header, which no other site's page can set, and is forgotten afterwards.
  // What an answer holds for the operator alone is shown here, and not told to the page's server.
  globalThis.sendOrder = async (form) => {
    const { action, peer, value, path, method } = form.dataset;
    const order = action ? { action, peer, confirm: true, ...(value && { value }) } : {};
    let token = "";
    for (const field of form.querySelectorAll("input")) {
      if (field.name === "token") {
        token = field.value.trim();
        field.value = "";
      } else if (field.type === "number") {
        const given = field.value || field.placeholder;
        if (given) order[field.name] = Math.round(Number(given) * Number(field.dataset.times));
      } else order[field.name] = field.value.trim();
    }
    if (!order.reason) return { done: false, sentence: "An action needs a reason, which everybody may read." };
    if (!/^[!-~]+$/.test(token)) return { done: false, sentence: "This is not the operator's token." };
    const sure = form.querySelector(".go");
    sure.disabled = true;
    try {
      const deletes = method === "DELETE";
      const query = deletes ? `?${new URLSearchParams(order)}` : "";
      const answer = await fetch(`/api/v1/${path}${query}`, {
        method, credentials: "omit", redirect: "error", body: deletes ? undefined : JSON.stringify(order),
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      });
      const said = await answer.json();
      if (said.token) form.querySelector("output").textContent = `Its token, shown only now: ${said.token}`;
      if (answer.ok) return { done: true, sentence: said.outcome || said.sentence, shows: Boolean(said.token) };
      if (answer.status !== 401) return { done: false, sentence: said.sentence };
      return { done: false, sentence: "This is not the operator's token, which is in coordinator/operator.token." };
    } catch {
      return { done: false, sentence: "The coordinator did not answer; look at the audit log before you try again." };
    } finally {
      sure.disabled = false;
    }
  };
})();
