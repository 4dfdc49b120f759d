"""Loaded by every process that imports verl in a rehearsal, on any device, through VERL_USE_EXTERNAL_MODULES."""

from verl_doctor_rehearsal import own_sockets, witness

witness.record("verl imported")
witness.watch_training()
own_sockets.use()
