"""What a worker cannot choose: seeds; and how far it is believed."""
