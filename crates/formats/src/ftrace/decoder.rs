//! The events that Fathom interprets, with their fields at positions that are the same for every kernel.
//!
//! A trace itself describes where each field is; here that is looked up once per kind of event, so that code that reads an
//! event finds its numbers by position. All other events of a trace are counted and left out.

use super::format::{Field, Format, Location};
use super::page::Layout;
use std::collections::BTreeMap;

/// Most numbers that an event has.
pub const NUMBERS_MAX: usize = 10;
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $Kind:ident = $name:literal [$($number:literal),*] $([$text:literal])?;)*) => {
        /// The kind of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[doc = $doc])+ $Kind),* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$Kind),*];

            /// The event's name in tracefs.
            pub fn name(self) -> &'static str {
                match self { $(Self::$Kind => $name),* }
            }

            /// The names of its numbers, in their order.
            pub fn numbers(self) -> &'static [&'static str] {
                match self { $(Self::$Kind => &[$($number),*]),* }
            }

            /// The name of its text, if it has one.
            pub fn text(self) -> Option<&'static str> {
                match self { $(Self::$Kind => kinds!(@text $($text)?)),* }
            }

            /// The name of the field with its disk's name, if it has one.
            pub fn disk(self) -> Option<&'static str> {
                matches!(self, Self::NvmeSetup | Self::NvmeDone).then_some("disk")
            }
        }
    };
    (@text) => { None };
    (@text $text:literal) => { Some($text) };
}

kinds! {
    /// A system call was entered.
    SysEnter = "sys_enter" ["id", "args"];
    /// A system call returned.
    SysExit = "sys_exit" ["id", "ret"];
    /// A thread left the CPU for another.
    Switch = "sched_switch" ["prev_pid", "prev_state", "next_pid"] ["next_comm"];
    /// A thread is being woken.
    Waking = "sched_waking" ["pid"] ["comm"];
    /// A thread was woken: it is on a run queue.
    Wakeup = "sched_wakeup" ["pid"] ["comm"];
    /// A task was created, with its flags.
    NewTask = "task_newtask" ["pid", "clone_flags"] ["comm"];
    /// A task was created, with its parent.
    Fork = "sched_process_fork" ["parent_pid", "child_pid"] ["child_comm"];
    /// A process executed another program.
    Exec = "sched_process_exec" ["pid", "old_pid"] ["filename"];
    /// A thread ended.
    Exit = "sched_process_exit" ["pid"] ["comm"];
    /// A bio entered the block layer.
    BioQueue = "block_bio_queue" ["dev", "sector", "nr_sector"] ["rwbs"];
    /// A bio was passed on to another disk.
    BioRemap = "block_bio_remap" ["dev", "sector", "nr_sector", "old_dev", "old_sector"] ["rwbs"];
    /// A bio was split.
    BioSplit = "block_split" ["dev", "sector", "new_sector"] ["rwbs"];
    /// A bio ended without having become a request.
    BioComplete = "block_bio_complete" ["dev", "sector", "nr_sector", "error"] ["rwbs"];
    /// A request was allocated for a bio.
    GetRequest = "block_getrq" ["dev", "sector", "nr_sector"] ["rwbs"];
    /// A request entered the I/O scheduler.
    RqInsert = "block_rq_insert" ["dev", "sector", "nr_sector", "bytes"] ["rwbs"];
    /// A request was issued to the driver.
    RqIssue = "block_rq_issue" ["dev", "sector", "nr_sector", "bytes"] ["rwbs"];
    /// A request, or a part of it, completed.
    RqComplete = "block_rq_complete" ["dev", "sector", "nr_sector", "error"] ["rwbs"];
    /// The journal's thread began to commit.
    CommitBegin = "jbd2_start_commit" ["dev", "transaction"];
    /// The commit is on disk.
    CommitEnd = "jbd2_end_commit" ["dev", "transaction"];
    /// A thread joined a transaction.
    Handle = "jbd2_handle_start" ["dev", "tid"];
    /// ext4 begins to write into a folio.
    DaWriteBegin = "ext4_da_write_begin" ["dev", "ino", "pos", "len"];
    /// The same, without delayed allocation.
    WriteBegin = "ext4_write_begin" ["dev", "ino", "pos", "len"];
    /// ext4 begins to sync a file.
    SyncEnter = "ext4_sync_file_enter" ["dev", "ino"];
    /// ext4 removes a name.
    UnlinkEnter = "ext4_unlink_enter" ["dev", "ino"];
    /// ext4 made an inode.
    AllocateInode = "ext4_allocate_inode" ["dev", "ino"];
    /// ext4 evicts an inode, which may be deleted thereby.
    EvictInode = "ext4_evict_inode" ["dev", "ino", "nlink"];
    /// ext4 begins to write pages of a file back.
    WritePages = "ext4_writepages" ["dev", "ino"];
    /// ext4 has written them back.
    WritePagesDone = "ext4_writepages_result" ["dev", "ino"];
    /// The location of a file's blocks was looked up.
    ExtentFound = "ext4_es_lookup_extent_exit" ["dev", "ino", "lblk", "len", "pblk", "status", "found"];
    /// The location of a file's blocks was cached.
    ExtentKept = "ext4_es_insert_extent" ["dev", "ino", "lblk", "len", "pblk", "status"];
    /// f2fs begins to write into a page.
    F2fsWriteBegin = "f2fs_write_begin" ["dev", "ino", "pos", "len"];
    /// f2fs begins to sync a file.
    F2fsSyncEnter = "f2fs_sync_file_enter" ["dev", "ino"];
    /// A read looks up pages in the cache.
    GetPages = "mm_filemap_get_pages" ["s_dev", "i_ino", "index", "last_index"];
    /// A page was added to the page cache.
    CacheAdd = "mm_filemap_add_to_page_cache" ["s_dev", "i_ino", "index", "order"];
    /// A metadata block is to be written in place, at a transaction's end or at once.
    DirtyBuffer = "block_dirty_buffer" ["dev", "sector", "size"];
    /// A SCSI command goes to the host's driver.
    ScsiStart = "scsi_dispatch_cmd_start" ["host_no", "channel", "id", "lun", "driver_tag", "cmd_len"] ["cmnd"];
    /// A SCSI command ended.
    ScsiDone = "scsi_dispatch_cmd_done" ["host_no", "channel", "id", "lun", "driver_tag", "result", "sense_key", "asc", "ascq"]
        ["cmnd"];
    /// A SCSI command timed out.
    ScsiTimeout = "scsi_dispatch_cmd_timeout" ["host_no", "channel", "id", "lun", "driver_tag"] ["cmnd"];
    /// The driver did not accept a SCSI command.
    ScsiError = "scsi_dispatch_cmd_error" ["host_no", "channel", "id", "lun", "driver_tag"] ["cmnd"];
    /// The error handler of a SCSI host was woken.
    ScsiHandler = "scsi_eh_wakeup" ["host_no"];
    /// An MMC command, or a task of a command queue engine, goes to the host.
    MmcStart = "mmc_request_start" ["mrq", "cmd_opcode", "cmd_arg", "blk_addr", "blocks", "blksz", "data_flags", "tag"];
    /// An MMC command ended.
    MmcDone = "mmc_request_done" ["mrq", "cmd_err", "stop_err", "sbc_err", "data_err", "cmd_resp", "stop_resp"];
    /// An NVMe command is made for a request that is about to be issued.
    NvmeSetup = "nvme_setup_cmd" ["ctrl_id", "qid", "opcode", "cid"] ["cdw10"];
    /// An NVMe command ended.
    NvmeDone = "nvme_complete_rq" ["ctrl_id", "qid", "cid", "status"];
    /// A UFS host's driver sends a command, or got its response.
    UfsCommand = "ufshcd_command" ["str_t", "tag", "lba", "opcode", "transfer_len", "hwq_id"] ["str"];
    /// A text that a program wrote into the trace.
    Print = "print" [] ["buf"];
    /// `sqlite3_step` was entered (a probe of Fathom's own).
    Step = "fathom_step" ["stmt"] ["sql"];
    /// `sqlite3_step` returned.
    StepReturn = "fathom_step_return" ["ret"];
    /// `sqlite3_reset` was entered.
    Reset = "fathom_reset" ["stmt"];
    /// `sqlite3_finalize` was entered.
    Finalize = "fathom_finalize" ["stmt"];
    /// The C library's `open` was entered.
    OpenPath = "fathom_open" [] ["path"];
}

impl Kind {
    /// Returns the kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it comes from a probe that Fathom itself adds to a kernel: other tools' traces have none.
    pub fn is_own(self) -> bool {
        matches!(self, Self::Step | Self::StepReturn | Self::Reset | Self::Finalize | Self::OpenPath)
    }

    /// The numbers without which an event of this kind says nothing.
    fn required(self) -> &'static [usize] {
        match self {
            Self::Exec | Self::NewTask | Self::MmcStart | Self::MmcDone => &[0],
            // The type of a UFS event may be its text.
            Self::UfsCommand | Self::Fork => &[1],
            _ => &[0, 1][..self.numbers().len().min(2)],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedEvent {
    /// Time on the trace's clock, in ns.
    pub time_ns: u64,
    pub cpu: u16,
    /// The thread that ran.
    pub tid: u32,
    pub kind: Kind,
    /// Its numbers, in the order of [`Kind::numbers`]. For the entry of a system call, its further arguments follow.
    numbers: [u64; NUMBERS_MAX],
    /// Bit set of the numbers that it has. No value says so: a flush's sector is 2^64-1, an error may be -1.
    present: u16,
    /// By how much it was moved to a later time to follow the event before it, in ns: the clocks of two CPUs differ.
    pub moved_ns: u32,
    /// Its text; if the field has bytes (`u8`), two digits for each.
    pub text: String,
    /// The name of its disk, if it has one ([`Kind::disk`]).
    pub disk: Option<Box<str>>,
}

impl DecodedEvent {
    /// An event without numbers or text.
    pub fn new(kind: Kind, time_ns: u64, cpu: u16, tid: u32) -> Self {
        let (text, disk) = (String::new(), None);
        Self { time_ns, cpu, tid, kind, numbers: [0; NUMBERS_MAX], present: 0, moved_ns: 0, text, disk }
    }

    /// A number, if this kernel has it.
    pub fn number(&self, place: usize) -> Option<u64> {
        let has = place < NUMBERS_MAX && self.present & 1 << place != 0;
        has.then(|| self.numbers[place])
    }

    /// Sets a number by its place.
    pub fn put(&mut self, place: usize, value: u64) {
        if let Some(number) = self.numbers.get_mut(place) {
            *number = value;
            self.present |= 1 << place;
        }
    }

    /// Sets the number of that name, if its kind has one.
    pub fn set(&mut self, name: &str, value: u64) {
        if let Some(place) = self.kind.numbers().iter().position(|own| *own == name) {
            self.put(place, value);
        }
    }

    /// Whether it has the numbers without which it says nothing.
    pub fn is_whole(&self) -> bool {
        self.kind.required().iter().all(|place| self.number(*place).is_some())
    }
}

/// Where the fields of one kind of event are.
#[derive(Debug, Clone)]
struct Places {
    kind: Kind,
    numbers: Vec<Option<Field>>,
    text: Option<Field>,
    disk: Option<Field>,
}

/// Reads the events of one trace.
#[derive(Debug, Clone)]
pub struct Decoder {
    layout: Layout,
    places: BTreeMap<u16, Places>,
    pid: Option<Field>,
    /// Names of the events that are left out.
    others: BTreeMap<u16, String>,
}

impl Decoder {
    /// Creates a decoder for a trace with these events.
    pub fn new(layout: Layout, formats: &[Format]) -> Self {
        let (mut places, mut others) = (BTreeMap::new(), BTreeMap::new());
        for format in formats {
            let Some(kind) = Kind::from_name(&format.name) else {
                others.insert(format.id, format!("{}:{}", format.system, format.name));
                continue;
            };
            let numbers = kind.numbers().iter().map(|name| format.field(name).cloned()).collect();
            let text = kind.text().and_then(|name| format.field(name).cloned());
            let disk = kind.disk().and_then(|name| format.field(name).cloned());
            places.insert(format.id, Places { kind, numbers, text, disk });
        }
        let pid = formats.iter().find_map(|f| f.field("common_pid").cloned());
        Self { layout, places, pid, others }
    }

    /// The kinds that the trace describes, whether or not one happened.
    pub fn described(&self) -> impl Iterator<Item = Kind> {
        self.places.values().map(|p| p.kind)
    }

    /// The name of an event that is left out.
    pub fn name_of(&self, data: &[u8]) -> Option<&str> {
        self.others.get(&self.id(data)).map(String::as_str)
    }

    fn id(&self, data: &[u8]) -> u16 {
        self.layout.number(data, 0, 2) as u16
    }

    /// Decodes an event; `None` if it is not interpreted.
    pub fn decode(&self, time_ns: u64, cpu: u16, data: &[u8]) -> Option<DecodedEvent> {
        let places = self.places.get(&self.id(data))?;
        let number = |field: &Field| self.number(data, field);
        let pid = self.pid.as_ref().and_then(number).unwrap_or(0);
        let mut seen = DecodedEvent::new(places.kind, time_ns, cpu, u32::try_from(pid).unwrap_or(0));
        for (place, field) in places.numbers.iter().enumerate() {
            if let Some(value) = field.as_ref().and_then(number) {
                seen.put(place, value);
            }
        }
        if places.kind == Kind::SysEnter
            && let Some(Some(args)) = places.numbers.get(1)
        {
            let width = args.size / 6;
            for i in (0..6).filter(|_| matches!(width, 4 | 8)) {
                seen.put(i + 1, self.layout.number(data, args.offset + i * width, width));
            }
        }
        if places.kind == Kind::MmcDone {
            // Of a response's four words, the first.
            for (place, field) in places.numbers.iter().enumerate().skip(5) {
                if let Some(field) = field {
                    seen.put(place, self.layout.number(data, field.offset, 4));
                }
            }
        }
        seen.text = places.text.as_ref().map(|f| self.text(data, f)).unwrap_or_default();
        seen.disk = places.disk.as_ref().map(|f| self.text(data, f).into());
        Some(seen)
    }

    /// Signed ones are extended to 64 bits.
    fn number(&self, data: &[u8], field: &Field) -> Option<u64> {
        if !matches!(field.size, 1 | 2 | 4 | 8) {
            // An array: read where it is needed.
            return (field.size > 8).then_some(0);
        }
        data.get(field.offset..field.offset.checked_add(field.size)?)?;
        let n = self.layout.number(data, field.offset, field.size);
        let unused = 64 - 8 * field.size as u32;
        Some(if field.signed { ((n << unused) as i64 >> unused) as u64 } else { n })
    }

    fn text(&self, data: &[u8], field: &Field) -> String {
        let (offset, length) = match field.location() {
            Some(from) => {
                let word = self.layout.number(data, field.offset, 4);
                let (offset, length) = ((word & 0xffff) as usize, (word >> 16) as usize);
                let start = if from == Location::FromField { field.offset + 4 } else { 0 };
                (start + offset, length)
            }
            None if field.size == 0 => (field.offset, data.len().saturating_sub(field.offset)),
            None => (field.offset, field.size),
        };
        let end = offset.saturating_add(length).min(data.len());
        let bytes = data.get(offset..end).unwrap_or_default();
        if field.of.contains("u8") || field.of.contains("unsigned char") {
            return bytes.iter().map(|b| format!("{b:02x}")).collect();
        }
        let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_LAYOUT: Layout = Layout { page_size: 4096, commit: (8, 8), data: 16, big_endian: false };

    fn format(name: &str, fields: &str) -> Format {
        let common = "field:unsigned short common_type;offset:0;size:2;signed:0;\n\
                      field:int common_pid;offset:4;size:4;signed:1;\n";
        Format::parse("s", &format!("name: {name}\nID: 7\nformat:\n{common}{fields}")).unwrap()
    }

    #[test]
    fn fields_are_read_at_offsets_of_format() {
        let format = format(
            "block_rq_complete",
            "field:sector_t sector;offset:8;size:8;signed:0;\nfield:int error;offset:16;size:4;signed:1;\n\
             field:char rwbs[4];offset:20;size:4;signed:0;\n",
        );
        let decoder = Decoder::new(PAGE_LAYOUT, &[format]);
        let mut data = vec![7, 0, 0, 0, 42, 0, 0, 0];
        data.extend(99u64.to_le_bytes());
        data.extend((-5i32).to_le_bytes());
        data.extend(b"WS\0x");
        let seen = decoder.decode(5, 1, &data).unwrap();
        assert_eq!((seen.kind, seen.tid, seen.text.as_str()), (Kind::RqComplete, 42, "WS"));
        // This trace has neither a disk nor a length.
        assert_eq!([0, 1, 2, 3].map(|i| seen.number(i)), [None, Some(99), None, Some(-5i64 as u64)]);
        assert_eq!(decoder.decode(5, 1, &[8, 0]), None);
        for cut in 0..data.len() {
            let seen = decoder.decode(5, 1, &data[..cut]);
            assert!(seen.is_none_or(|s| s.text.len() <= 2));
        }
    }

    #[test]
    fn no_value_means_that_number_is_missing() {
        let text = "field:u64 sector;offset:8;size:8;signed:0;\nfield:int error;offset:16;size:4;signed:1;\n";
        let data = [&[7, 0, 0, 0, 1, 0, 0, 0][..], &[0xff; 12]].concat();
        let seen = Decoder::new(PAGE_LAYOUT, &[format("block_rq_complete", text)]).decode(0, 0, &data).unwrap();
        assert_eq!([0, 1, 2, 3].map(|place| seen.number(place)), [None, Some(u64::MAX), None, Some(u64::MAX)]);
        assert_eq!(seen.number(64), None);
    }

    #[test]
    fn text_is_read_at_its_location() {
        for (of, offset) in [("__data_loc", 16u32), ("__rel_loc", 4)] {
            let text = format!("field:{of} char[] filename;offset:8;size:4;signed:0;\n");
            let decoder = Decoder::new(PAGE_LAYOUT, &[format("sched_process_exec", &text)]);
            let mut data = vec![7, 0, 0, 0, 1, 0, 0, 0];
            data.extend((5 << 16 | offset).to_le_bytes());
            data.extend([0; 4]);
            data.extend(b"/a/b\0rest");
            assert_eq!(decoder.decode(0, 0, &data).unwrap().text, "/a/b", "{of}");
            data[9] = 0xff;
            assert_eq!(decoder.decode(0, 0, &data).unwrap().text, "", "beyond the event's end");
        }
    }

    #[test]
    fn events_of_own_probes_are_named_so() {
        for kind in Kind::ALL {
            assert_eq!(kind.is_own(), kind.name().starts_with("fathom_"), "{}", kind.name());
        }
    }

    #[test]
    fn bytes_are_read_as_digits() {
        let of = format("nvme_setup_cmd", "field:u8 cdw10[24];offset:8;size:24;signed:0;\n");
        let data = [&[7, 0, 0, 0, 1, 0, 0, 0][..], &[0, 8, 0xff, 0]].concat();
        assert_eq!(Decoder::new(PAGE_LAYOUT, &[of]).decode(0, 0, &data).unwrap().text, "0008ff00");
    }

    #[test]
    fn syscall_arguments_are_read_as_numbers() {
        let text = "field:long id;offset:8;size:8;signed:1;\nfield:unsigned long args[6];offset:16;size:48;signed:0;\n";
        let decoder = Decoder::new(PAGE_LAYOUT, &[format("sys_enter", text)]);
        let mut data = vec![7, 0, 0, 0, 1, 0, 0, 0];
        (0..7u64).for_each(|n| data.extend((n + 10).to_le_bytes()));
        let seen = decoder.decode(0, 0, &data).unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|place| seen.number(place)), [10, 11, 12, 13, 14, 15, 16].map(Some));
    }

    #[test]
    fn kind_names_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(*kind));
            assert!(kind.numbers().len() <= NUMBERS_MAX);
        }
    }
}
