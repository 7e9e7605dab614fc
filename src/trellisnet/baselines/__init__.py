"""Baseline networks as bodies, one short file each; `trellisnet.models.body` defines what a body is."""
