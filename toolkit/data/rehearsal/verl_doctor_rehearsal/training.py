"""What every process that imports verl gets in a rehearsal, wherever it runs. Imported through VERL_USE_EXTERNAL_MODULES."""

from verl_doctor_rehearsal import own_sockets, witness

witness.tell("verl imported")
witness.watch_training()
own_sockets.use()
