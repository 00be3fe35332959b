"""What connects an app to other systems, one file each. Each needs the extra that has its name."""
