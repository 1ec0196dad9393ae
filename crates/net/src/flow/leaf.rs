//! What a flow's time is divided into, and a division of time that is whole by construction.

use serde::Serialize;

macro_rules! leaves {
    ($( $(#[doc = $doc:literal])+ $name:ident = $text:literal, )*) => {
        /// What held a flow for a part of its time. Exactly one applies to each nanosecond.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Leaf {
            $( $(#[doc = $doc])+ $name, )*
        }

        impl Leaf {
            pub const ALL: [Self; Self::COUNT] = [$( Self::$name ),*];
            const COUNT: usize = [$( stringify!($name) ),*].len();

            /// The leaf as text.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$name => $text, )*
                }
            }
        }
    };
}

leaves! {
    /// The sender's program had written nothing more.
    Application = "application: nothing to send",
    /// The receiver's program did not read, so that the window closed.
    Reader = "receiver does not read",
    /// The whole send buffer was in flight.
    SendBuffer = "send buffer",
    /// The receiver's window was full.
    ReceiveWindow = "receive window",
    /// The same, and window scaling was not negotiated: 64 KiB at most.
    ReceiveWindowUnscaled = "receive window without scaling",
    /// The congestion window was full, and had not been reduced yet.
    CwndStart = "congestion window: start",
    /// The congestion window was full; a loss had reduced it.
    CwndAfterLoss = "congestion window after loss",
    /// The same; a congestion mark (ECN) had reduced it.
    CwndAfterEcn = "congestion window after ECN mark",
    /// Recovery by selective acknowledgements.
    FastRecovery = "fast recovery",
    /// Recovery after a retransmission timeout.
    TimeoutRecovery = "timeout recovery",
    /// The program's own limit (SO_MAX_PACING_RATE).
    Pacing = "requested pacing",
    /// A queue stood in the path, or the path's estimated rate was delivered.
    LinkRate = "link at its rate",
    /// What exceeded a rate was dropped: a policer, or a queue too short for bursts.
    PolicerOrShallowQueue = "policer or shallow queue",
    /// Nothing got through: data in flight, timeouts, no progress.
    Outage = "outage",
    /// Segments of full size did not get through, and smaller ones did.
    BlackHole = "black hole by size",
    /// The data arrived, and the acknowledgements did not.
    AckPath = "acknowledgements lost",
    /// Packets out of order were taken for lost.
    Reordering = "reordering",
    /// The evidence supports none of the others.
    Unknown = "unknown",
}

/// Time by leaf, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Division {
    ns: [u64; Leaf::COUNT],
}

impl Division {
    pub fn add(&mut self, leaf: Leaf, ns: u64) {
        self.ns[leaf as usize] += ns;
    }

    pub fn add_all(&mut self, other: &Self) {
        self.iter_all().zip(other.ns).for_each(|(ns, more)| *ns += more);
    }

    fn iter_all(&mut self) -> impl Iterator<Item = &mut u64> {
        self.ns.iter_mut()
    }

    /// Gives the time of some leaves to another one.
    pub fn move_all(&mut self, from: &[Leaf], to: Leaf) {
        let moved: u64 = from.iter().map(|leaf| std::mem::take(&mut self.ns[*leaf as usize])).sum();
        self.add(to, moved);
    }

    pub fn of(&self, leaf: Leaf) -> u64 {
        self.ns[leaf as usize]
    }

    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Leaves with time, the largest first.
    pub fn parts(&self) -> Vec<(Leaf, u64)> {
        let mut parts: Vec<(Leaf, u64)> = Leaf::ALL.into_iter().zip(self.ns).filter(|(_, ns)| *ns > 0).collect();
        parts.sort_by_key(|(leaf, ns)| (std::cmp::Reverse(*ns), *leaf));
        parts
    }

    /// The leaf with the most time.
    pub fn largest(&self) -> Option<Leaf> {
        self.parts().first().map(|(leaf, _)| *leaf)
    }
}
