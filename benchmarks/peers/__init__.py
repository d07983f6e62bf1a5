"""What elastichost is measured against, one file per system. Each trains endlessly and counts its samples."""
