"""What happens to the log when processes, disks, clocks and power fail: done for real, and judged by somebody else."""
