"""From what a person says to a signed command and its end: witness, signer, sending, receipts."""
