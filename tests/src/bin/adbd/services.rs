//! The targets of a stream: a shell, files, a port.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

/// Serves a stream until it ends; false if there is no such service. The times of received files are reduced by the seconds that the
/// clock here is ahead.
pub fn serve(name: &str, stream: UnixStream, ahead: u32) -> bool {
    if let Some((_, line)) = name.strip_prefix("shell,v2").and_then(|rest| rest.split_once(':')) {
        let line = line.to_owned();
        std::thread::spawn(move || shell_v2(&line, stream));
    } else if let Some(line) = name.strip_prefix("shell:") {
        let line = line.to_owned();
        std::thread::spawn(move || shell_v1(&line, stream));
    } else if name == "sync:" {
        std::thread::spawn(move || serve_sync(stream, ahead));
    } else if let Some(port) = name.strip_prefix("tcp:").and_then(|p| p.parse::<u16>().ok()) {
        let Ok(there) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        std::thread::spawn(move || relay(stream, there));
    } else {
        return false;
    }
    true
}

fn shell_command(line: &str) -> Command {
    let mut command = Command::new("/system/bin/sh");
    command.args(["-c", line]).process_group(0).env_clear();
    command
        .env("PATH", "/system/bin:/system/xbin")
        .env("HOME", "/")
        .env("ANDROID_DATA", "/data")
        .env("ANDROID_ROOT", "/system");
    command
}

fn write_packet(to: &Mutex<UnixStream>, kind: u8, data: &[u8]) -> bool {
    let all = [&[kind][..], &(data.len() as u32).to_le_bytes(), data].concat();
    to.lock().is_ok_and(|mut to| to.write_all(&all).is_ok())
}

/// When the host closes the stream the command's input ends and its outputs are closed; no process is killed for that.
fn shell_v2(line: &str, stream: UnixStream) {
    let spawned = shell_command(line).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(from_clone) = stream.try_clone() else { return };
    let (to, mut from) = (Arc::new(Mutex::new(stream)), from_clone);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            write_packet(&to, 2, format!("cannot start the shell: {error}\n").as_bytes());
            write_packet(&to, 3, &[127]);
            return;
        }
    };
    let (mut input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let hand_on = |kind: u8, from: Option<Box<dyn Read + Send>>| {
        let to = to.clone();
        std::thread::spawn(move || {
            let mut room = vec![0; 64 << 10];
            let mut from = from;
            while let Some(got) = from.as_mut().and_then(|f| f.read(&mut room).ok()).filter(|n| *n > 0) {
                if !write_packet(&to, kind, &room[..got]) {
                    break;
                }
            }
        })
    };
    let outputs = [
        hand_on(1, out.map(|o| Box::new(o) as Box<dyn Read + Send>)),
        hand_on(2, err.map(|e| Box::new(e) as Box<dyn Read + Send>)),
    ];
    std::thread::spawn(move || {
        let mut head = [0; 5];
        while from.read_exact(&mut head).is_ok() {
            let mut data = vec![0; u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize];
            if from.read_exact(&mut data).is_err() {
                break;
            }
            match head[0] {
                0 => drop(input.as_mut().map(|i| i.write_all(&data))),
                4 => drop(input.take()),
                _ => {}
            }
        }
        drop(input);
    });
    for output in outputs {
        let _ = output.join();
    }
    let status = child.wait().map_or(127, |s| s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0)));
    write_packet(&to, 3, &[status as u8]);
    let _ = to.lock().map(|to| to.shutdown(std::net::Shutdown::Both));
}

/// The shell protocol before Android 7: one stream, no status.
fn shell_v1(line: &str, stream: UnixStream) {
    let (Ok(input), Ok(out)) = (stream.try_clone(), stream.try_clone()) else { return };
    let both = [OwnedEnd(out), OwnedEnd(stream)].map(|end| Stdio::from(std::os::fd::OwnedFd::from(end.0)));
    let [out, err] = both;
    let spawned =
        shell_command(line).stdin(Stdio::from(std::os::fd::OwnedFd::from(input))).stdout(out).stderr(err).spawn();
    if let Ok(mut child) = spawned {
        let _ = child.wait();
    }
}

struct OwnedEnd(UnixStream);

/// Relays in both directions until both ends have ended.
pub fn relay(here: UnixStream, there: TcpStream) {
    let (Ok(mut here_in), Ok(mut there_out)) = (here.try_clone(), there.try_clone()) else { return };
    let (mut here_out, mut there_in) = (here, there);
    let up = std::thread::spawn(move || {
        let _ = io::copy(&mut here_in, &mut there_out);
        let _ = there_out.shutdown(std::net::Shutdown::Write);
    });
    let _ = io::copy(&mut there_in, &mut here_out);
    let _ = here_out.shutdown(std::net::Shutdown::Write);
    let _ = up.join();
}

fn serve_sync(mut stream: UnixStream, ahead: u32) {
    while sync_one(&mut stream, ahead).unwrap_or(false) {}
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

fn read_word(from: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn write_failure(to: &mut UnixStream, why: &str) -> io::Result<()> {
    to.write_all(&[&b"FAIL"[..], &(why.len() as u32).to_le_bytes(), why.as_bytes()].concat())
}

/// Serves a request of the file service; false at its end.
fn sync_one(stream: &mut UnixStream, ahead: u32) -> io::Result<bool> {
    let mut id = [0; 4];
    stream.read_exact(&mut id)?;
    let length = read_word(stream)? as usize;
    if length > 4096 {
        write_failure(stream, "path too long")?;
        return Ok(false);
    }
    let mut name = vec![0; length];
    stream.read_exact(&mut name)?;
    let name = String::from_utf8_lossy(&name).into_owned();
    match &id {
        b"STAT" => {
            let about = fs::symlink_metadata(&name).ok();
            let numbers = about.map_or([0; 3], |a| [a.mode(), a.len() as u32, a.mtime() as u32]);
            stream.write_all(&[&b"STAT"[..], &numbers.map(u32::to_le_bytes).concat()].concat())?;
        }
        b"STA2" | b"LST2" => {
            let about = if &id == b"STA2" { fs::metadata(&name) } else { fs::symlink_metadata(&name) };
            let mut all = id.to_vec();
            match about {
                Ok(a) => {
                    all.extend(0_u32.to_le_bytes());
                    [a.dev(), a.ino()].iter().for_each(|n| all.extend(n.to_le_bytes()));
                    [a.mode(), a.nlink() as u32, a.uid(), a.gid()].iter().for_each(|n| all.extend(n.to_le_bytes()));
                    all.extend(a.len().to_le_bytes());
                    [a.atime(), a.mtime(), a.ctime()].iter().for_each(|n| all.extend(n.to_le_bytes()));
                }
                Err(error) => {
                    all.extend((error.raw_os_error().unwrap_or(5) as u32).to_le_bytes());
                    all.resize(72, 0);
                }
            }
            stream.write_all(&all)?;
        }
        b"SEND" => {
            let (path, mode) = name.rsplit_once(',').unwrap_or((&name, "0600"));
            receive_file(stream, path, mode.parse().unwrap_or(0o600), ahead)?;
        }
        b"SND2" => {
            let mut rest = [0; 12];
            stream.read_exact(&mut rest)?;
            let mode = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]);
            receive_file(stream, &name, mode, ahead)?;
        }
        b"RECV" => send_file(stream, &name)?,
        b"RCV2" => {
            let mut rest = [0; 8];
            stream.read_exact(&mut rest)?;
            send_file(stream, &name)?;
        }
        b"LIST" => {
            for entry in fs::read_dir(&name).into_iter().flatten().flatten() {
                let (Ok(about), Ok(name)) = (entry.metadata(), entry.file_name().into_string()) else { continue };
                let numbers = [about.mode(), about.len() as u32, about.mtime() as u32, name.len() as u32];
                stream.write_all(&[&b"DENT"[..], &numbers.map(u32::to_le_bytes).concat(), name.as_bytes()].concat())?;
            }
            stream.write_all(&[&b"DONE"[..], &[0; 16]].concat())?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn receive_file(stream: &mut UnixStream, path: &str, mode: u32, ahead: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode & 0o777).open(path);
    let mut trouble = file.as_ref().err().map(|e| format!("couldn't create file: {e}"));
    loop {
        let mut id = [0; 4];
        stream.read_exact(&mut id)?;
        let length = read_word(stream)? as usize;
        if &id == b"DONE" {
            // Its time is the host's; a number instead of a length.
            let time = UNIX_EPOCH + Duration::from_secs((length as u64).saturating_sub(ahead.into()));
            if let Ok(file) = &file {
                file.set_modified(time)?;
            }
            break;
        }
        if &id != b"DATA" || length > 64 << 10 {
            return write_failure(stream, "invalid data message");
        }
        let mut data = vec![0; length];
        stream.read_exact(&mut data)?;
        if let (None, Ok(file)) = (&trouble, &mut file) {
            trouble = file.write_all(&data).err().map(|e| format!("remote write failed: {e}"));
        }
    }
    match trouble {
        None => stream.write_all(b"OKAY\0\0\0\0"),
        Some(why) => {
            let _ = fs::remove_file(path);
            write_failure(stream, &why)
        }
    }
}

fn send_file(stream: &mut UnixStream, path: &str) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return write_failure(stream, &format!("open failed: {error}")),
    };
    let mut room = vec![0; 64 << 10];
    loop {
        match file.read(&mut room) {
            Ok(0) => return stream.write_all(b"DONE\0\0\0\0"),
            Ok(got) => stream.write_all(&[&b"DATA"[..], &(got as u32).to_le_bytes(), &room[..got]].concat())?,
            Err(error) => return write_failure(stream, &format!("read failed: {error}")),
        }
    }
}
