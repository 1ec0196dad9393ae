//! The process that opened or closed a connection, from a BPF program at a tracepoint (`bpf/openers.bpf.c`): for connections
//! that are gone before /proc is read. Needs CAP_BPF and CAP_PERFMON, and a kernel with BTF.

use aya::maps::{HashMap, MapData};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/openers.bpf.o"));
/// The program, which has the name of its tracepoint.
const TRACEPOINT: &str = "inet_sock_set_state";
const ANCESTORS: usize = 4;

fn text(error: &(dyn std::error::Error + 'static)) -> String {
    model::text::error_chain(error)
}

/// The value of the map.
#[repr(C)]
#[derive(Clone, Copy)]
struct Opener {
    pids: [u32; ANCESTORS],
}

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for Opener {}

/// A loaded program; it is detached when this is dropped.
pub struct Openers {
    _ebpf: Ebpf,
    map: HashMap<MapData, u64, Opener>,
}

impl std::fmt::Debug for Openers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Openers")
    }
}

impl Openers {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// What the kernel lacks or refuses, as text for people.
    pub fn attach() -> Result<Self, String> {
        let btf = Btf::from_sys_fs().map_err(|e| text(&e))?;
        let mut ebpf = Ebpf::load(OBJECT).map_err(|e| text(&e))?;
        let program = ebpf.program_mut(TRACEPOINT).ok_or("the object lacks its program")?;
        let program: &mut BtfTracePoint = program.try_into().map_err(|e: aya::programs::ProgramError| text(&e))?;
        program.load(TRACEPOINT, &btf).map_err(|e| text(&e))?;
        program.attach().map_err(|e| text(&e))?;
        let map = ebpf.take_map("openers").ok_or("the object lacks its map")?;
        Ok(Self { _ebpf: ebpf, map: HashMap::try_from(map).map_err(|e| text(&e))? })
    }

    /// The process of a connection and its ancestors, the process first; `None` if it was not seen.
    pub fn of(&self, cookie: u64) -> Option<impl Iterator<Item = u32> + use<>> {
        self.map.get(&cookie, 0).ok().map(|opener| opener.pids.into_iter().filter(|pid| *pid > 0))
    }
}
