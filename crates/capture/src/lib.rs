//! Events off a kernel: eBPF probes, and where SQLite's functions are.
