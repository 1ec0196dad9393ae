//! Made, used, removed: loop disks and virtual machines.
