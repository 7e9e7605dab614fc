"""Other nets of the field as bodies, one short file each; see `trellisnet.models.body` for what a body is."""
