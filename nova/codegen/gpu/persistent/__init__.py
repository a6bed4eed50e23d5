"""Programs as tasks of one resident kernel: its code, for `link-persistent-kernel`."""
