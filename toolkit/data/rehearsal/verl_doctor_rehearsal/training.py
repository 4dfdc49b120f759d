"""Loaded through VERL_USE_EXTERNAL_MODULES by every process importing verl in a rehearsal, on any device."""

from verl_doctor_rehearsal import own_sockets, witness

witness.record("verl imported")
witness.watch_training()
own_sockets.use()
