//! Names for SCSI's numbers, for the linker, which gets numbers, and the parsers of traces, which get names.

/// `enum scsi_host_status` (include/scsi/scsi_status.h), by number: what the host's driver reports about a command.
pub const HOST_STATUS: [&str; 21] = [
    "OK",
    "NO_CONNECT",
    "BUS_BUSY",
    "TIME_OUT",
    "BAD_TARGET",
    "ABORT",
    "PARITY",
    "ERROR",
    "RESET",
    "BAD_INTR",
    "PASSTHROUGH",
    "SOFT_ERROR",
    "IMM_RETRY",
    "REQUEUE",
    "TRANSPORT_DISRUPTED",
    "TRANSPORT_FAILFAST",
    "TARGET_FAILURE",
    "NEXUS_FAILURE",
    "ALLOC_FAILURE",
    "MEDIUM_ERROR",
    "TRANSPORT_MARGINAL",
];
