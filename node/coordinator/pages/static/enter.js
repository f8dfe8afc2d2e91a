// Shows the operator's token once, in a header; what is kept is a cookie that no script sees.
document.getElementById("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = event.target.elements.token;
  const token = field.value.trim();
  field.value = "";
  const right = /^[!-~]+$/.test(token) && (await fetch("/enter", {
    method: "POST", headers: { Authorization: `Bearer ${token}` },
  }).catch(() => ({ ok: false }))).ok;
  if (right) location.reload();
  else document.getElementById("said").textContent = "✖ This is not the operator's token.";
});
