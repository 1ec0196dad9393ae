//! kill -9 of nodes and coordinators under load: acknowledged writes survive, unacknowledged ones may be lost, and
//! nothing else is read.
//!
//! The page cache survives a killed process, so not only flushed writes must be there, but all acknowledged ones. Each round kills some of
//! the nodes while writes are in flight, at a moment drawn from a seed; every fourth kills the coordinator, whose clients then do not know
//! the outcome of their requests. `FATHOM_KILL_ROUNDS=100` runs a hundred rounds.

use anyhow::{Result, bail, ensure};
use fathom_tests::pool::{Client, Pool, Verb};
use fathom_tests::{Case, run_suite};
use stats::random::Random;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("acknowledged_writes_survive_kills_under_load", Ok(()), || run_kill_rounds("1")),
        ("acknowledged_writes_survive_kills_with_three_connections", Ok(()), || run_kill_rounds("3")),
        ("node_memory_stays_below_64_mib", Ok(()), node_memory_stays_below_64_mib),
    ];
    run_suite(cases)
}

/// Bytes of one write; not a multiple of a block, so that writes share blocks.
const PLACE_BYTES: u64 = 7000;
/// Writes of a round.
const WRITE_COUNT: usize = 400;

/// Returns the place's bytes after the write of that number; 0 is never written.
fn content_of(place: u64, write: u64) -> Vec<u8> {
    if write == 0 {
        return vec![0; PLACE_BYTES as usize];
    }
    let mut random = Random::new(place << 32 ^ write);
    let word = random.bits().to_le_bytes();
    word.iter().copied().cycle().take(PLACE_BYTES as usize).collect()
}

fn run_kill_rounds(connections: &str) -> Result<()> {
    let rounds: u64 = std::env::var("FATHOM_KILL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let seed: u64 = std::env::var("FATHOM_KILL_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(2012);
    let mut pool = Pool::new(&["6M", "9M", "7M"], &["--layout", "stripe", "--connections", connections])?;
    let mut random = Random::new(seed);
    let (mut client, size) = Client::connect(&pool.socket())?;
    // The writes that each place may contain; more than one while their outcome is unknown.
    let mut may: Vec<Vec<u64>> = vec![vec![0]; (size / PLACE_BYTES) as usize];
    let (mut write, mut unknown, mut kills) = (0, 0, 0);
    for round in 1..=rounds {
        let mut chosen = BTreeSet::new();
        while chosen.len() < WRITE_COUNT {
            chosen.insert(random.below(may.len() as u64));
        }
        for place in &chosen {
            write += 1;
            may[*place as usize].push(write);
            let fua = write % 16 == 0;
            client.ask(Verb::Write, fua, *place, place * PLACE_BYTES, PLACE_BYTES as u32, &content_of(*place, write));
        }
        // In another thread, since this one blocks when the connection is full.
        let after = Duration::from_micros(random.below(20_000));
        let silence = round % 4 == 0;
        let victims: Vec<usize> = (0..pool.count()).filter(|_| random.below(2) == 0).collect();
        kills += victims.len() + usize::from(silence);
        let answered = std::thread::scope(|scope| -> Result<Vec<u64>> {
            let load = scope.spawn(|| receive_replies(&mut client, chosen.len()));
            let until = Instant::now() + after;
            while Instant::now() < until && !load.is_finished() {
                std::thread::yield_now();
            }
            if silence {
                pool.kill_coordinator()?;
            }
            victims.iter().try_for_each(|victim| pool.restart_node(*victim))?;
            match load.join() {
                Ok((answered, None)) => Ok(answered),
                Ok((answered, Some(_))) if silence => Ok(answered),
                Ok((_, Some(why))) => Err(why.context(format!("round {round} of seed {seed}"))),
                Err(_) => bail!("the client panicked"),
            }
        })?;
        for place in &answered {
            let last = may[*place as usize].pop();
            may[*place as usize] = last.into_iter().collect();
        }
        unknown += chosen.len() - answered.len();
        if silence {
            pool.serve()?;
            client = Client::connect(&pool.socket())?.0;
        }
        client.now(Verb::Flush, 0, 0, &[])?;
        for place in &chosen {
            check_place(&mut client, &mut may, *place)
                .map_err(|why| why.context(format!("after round {round} of seed {seed}")))?;
        }
    }
    (0..pool.count()).try_for_each(|node| pool.restart_node(node))?;
    (0..may.len() as u64).try_for_each(|place| check_place(&mut client, &mut may, place))?;
    println!(
        "{rounds} rounds, {kills} kills, {write} writes, {unknown} of them unanswered; every place is as it must be"
    );
    drop(client);
    pool.end()
}

/// Sends what is queued and receives this many replies: returns the cookies of those that arrived, and why no more did.
fn receive_replies(client: &mut Client, count: usize) -> (Vec<u64>, Option<anyhow::Error>) {
    let mut answered = Vec::new();
    let mut all = || -> Result<()> {
        client.send()?;
        while answered.len() < count {
            let (cookie, error) = client.reply()?;
            ensure!(error == 0, "the write of place {cookie} failed with error {error}");
            answered.push(cookie);
        }
        Ok(())
    };
    let why = all().err();
    (answered, why)
}

/// Reads a place: it contains one of the possible writes, and from now on only that one is possible.
fn check_place(client: &mut Client, may: &mut [Vec<u64>], place: u64) -> Result<()> {
    let data = client.now(Verb::Read, place * PLACE_BYTES, PLACE_BYTES as u32, &[])?;
    let may = &mut may[place as usize];
    if let Some(write) = may.iter().copied().find(|write| content_of(place, *write) == data) {
        *may = vec![write];
        return Ok(());
    }
    // A write without a reply may have been made in part: each block contains one of the possible writes.
    let begin = place * PLACE_BYTES;
    let blocks = begin / 4096..(begin + PLACE_BYTES).div_ceil(4096);
    let whole = blocks.clone().all(|block| {
        let from = (block * 4096).max(begin) - begin;
        let to = ((block + 1) * 4096).min(begin + PLACE_BYTES) - begin;
        let range = from as usize..to as usize;
        may.iter().any(|write| content_of(place, *write)[range.clone()] == data[range.clone()])
    });
    ensure!(whole && may.len() > 1, "place {place} holds {:?}…, which is none of the writes {may:?}", &data[..8]);
    // The place stays undecided, and is written again, with a new number, before it is read.
    Ok(())
}

/// Clients that send many large requests and never read.
fn node_memory_stays_below_64_mib() -> Result<()> {
    let pool = Pool::new(&["64M"], &["--connections", "4"])?;
    let peak = |pool: &Pool| pool.peak_kib();
    let idle = peak(&pool)?;
    let mut clients = Vec::new();
    for nth in 0..4_u64 {
        let (mut client, _) = Client::connect(&pool.socket())?;
        // 1,000 reads of 1 MiB whose replies are not received, then writes.
        for cookie in 0..1000 {
            client.ask(Verb::Read, false, cookie, ((nth * 13 + cookie) % 63) << 20, 1 << 20, &[]);
        }
        client.send()?;
        clients.push(client);
    }
    let data = vec![7; 1 << 20];
    let (mut writer, _) = Client::connect(&pool.socket())?;
    for round in 0..8 {
        for cookie in 0..32 {
            writer.ask(Verb::Write, false, cookie, ((round * 7 + cookie) % 63) << 20, 1 << 20, &data);
        }
        // Small reads between them.
        for cookie in 32..1000 {
            writer.ask(Verb::Read, false, cookie, cookie * 4096, 512, &[]);
        }
        writer.send()?;
        for _ in 0..1000 {
            let (cookie, error) = writer.reply()?;
            ensure!(error == 0, "error {error}");
            if cookie >= 32 {
                writer.data(512)?;
            }
        }
    }
    drop(clients);
    let most = peak(&pool)?;
    println!("a node had {idle} KiB at first and at most {most} KiB");
    ensure!(most < 64 << 10, "a node had {most} KiB");
    pool.end()
}
