//! Twenty seeded regressions of the I/O of ten programs: each is found, and named first, with the statement or the file concerned.
//!
//! Each is a realistic effect of a change of a program or of its settings: an additional sync, commits that are no longer shared, an eager
//! loop instead of a join, small writes instead of large ones, temporary files. Only counts are compared, so a busy machine cannot hide
//! one.

use super::{assert_fails, assert_passes, check_command, record_contract, text};
use anyhow::{Context, Result, ensure};
use fathom_tests::{installed, root};
use std::path::Path;
use std::process::Command;

/// A program that uses files, and its regressions.
struct Program {
    name: &'static str,
    /// Other programs that it needs.
    needs: &'static [&'static str],
    /// Files that it needs.
    files: &'static [(&'static str, &'static str)],
    /// Command that runs before each run.
    prepare: &'static str,
    /// The program as intended.
    line: &'static str,
    regressions: &'static [Regression],
}

/// One regression: the changed program; the prefixes of the first difference's statement (none: outside of statements) and count; the text
/// of the reason, and that of any difference.
struct Regression(&'static str, [&'static str; 2], [&'static str; 2]);

const GIT_COMMAND: &str = "git -C r -c user.name=a -c user.email=a@b -c gc.auto=0 -c maintenance.auto=false";

const DJANGO_FILES: [(&str, &str); 4] = [
    ("run.py", include_str!("django/run.py")),
    ("shop/__init__.py", ""),
    ("shop/models.py", include_str!("django/models.py")),
    ("shop/tests.py", include_str!("django/tests.py")),
];

/// Ten programs, twenty regressions.
const SEEDED_PROGRAMS: [Program; 10] = [
    Program {
        name: "git",
        needs: &["git"],
        files: &[],
        prepare: "rm -rf r && git init -q r && echo x > r/f && git -C r add f",
        line: "$GIT -c core.fsync=none commit -qm x",
        regressions: &[
            Regression(
                "$GIT -c core.fsync=loose-object commit -qm x",
                ["fsync tmp_obj_N", "executions"],
                ["the statement is new: it ran 2 times", ""],
            ),
            Regression(
                "$GIT -c core.fsync=reference commit -qm x",
                ["fsync ma", "executions"],
                ["the statement is new: it ran 1 time", ""],
            ),
        ],
    },
    Program {
        name: "sqlite3",
        needs: &["sqlite3"],
        files: &[],
        prepare: "rm -f a.db*; sqlite3 a.db 'CREATE TABLE t (x)'",
        line: "sqlite3 a.db 'PRAGMA journal_mode=truncate; BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); COMMIT'",
        regressions: &[
            Regression(
                "sqlite3 a.db 'PRAGMA journal_mode=truncate; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)'",
                ["INSERT INTO t", "fdatasync rollback journal"],
                ["no longer share a transaction", ""],
            ),
            Regression(
                "sqlite3 a.db 'PRAGMA journal_mode=delete; PRAGMA synchronous=extra; BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); COMMIT'",
                ["COMMIT", "fdatasync directory"],
                ["journal_mode changed from TRUNCATE to DELETE", ""],
            ),
        ],
    },
    Program {
        name: "svn",
        needs: &["svn", "svnadmin"],
        files: &[],
        prepare: "rm -rf repo wc; svnadmin create repo; svn -q co file://$PWD/repo wc; for i in 1 2 3 4; do echo $i > wc/$i; done; svn -q add wc/?",
        line: "svn -q commit -m x wc",
        regressions: &[
            Regression(
                "svn -q commit -m x wc/1 wc/2 && svn -q commit -m y wc/3 wc/4",
                ["", "fdatasync file"],
                ["", "fdatasync directory"],
            ),
            Regression(
                "for i in 5 6 7 8; do echo $i > wc/$i; done; svn -q add wc/5 wc/6 wc/7 wc/8; svn -q commit -m x wc",
                ["", ""],
                ["", "write file"],
            ),
        ],
    },
    Program {
        name: "svnadmin",
        needs: &["svn", "svnadmin"],
        files: &[],
        prepare: "rm -rf repo new; svnadmin create repo; svn -q mkdir -m x file://$PWD/repo/a; svn -q mkdir -m x file://$PWD/repo/b; svnadmin dump -q repo > dump; svnadmin create new",
        line: "svnadmin load -q --no-flush-to-disk new < dump",
        regressions: &[Regression("svnadmin load -q new < dump", ["", "fdatasync file"], ["", "fdatasync directory"])],
    },
    Program {
        name: "django",
        needs: &[],
        files: &DJANGO_FILES,
        prepare: "rm -f test.db*",
        line: "/usr/bin/python3 -B run.py join rollback",
        regressions: &[
            Regression(
                "/usr/bin/python3 -B run.py each rollback",
                ["SELECT \"shop_author\"", "executions"],
                ["the statement is new: it ran 5 times", "INNER JOIN"],
            ),
            Regression(
                "/usr/bin/python3 -B run.py join commit",
                ["INSERT INTO \"shop_book\"", "fdatasync rollback journal"],
                ["", ""],
            ),
        ],
    },
    Program {
        name: "redis",
        needs: &["redis-server", "redis-cli"],
        files: &[],
        prepare: "rm -rf appendonlydir *.rdb s log",
        line: "redis-server --port 0 --unixsocket $PWD/s --dir $PWD --save '' --logfile log --appendonly yes --appendfsync no & until redis-cli -s s ping >/dev/null 2>&1; do :; done; for k in 1 2 3 4 5; do redis-cli -s s SET k$k v >/dev/null; done; redis-cli -s s shutdown nosave; wait",
        regressions: &[
            Regression(
                "redis-server --port 0 --unixsocket $PWD/s --dir $PWD --save '' --logfile log --appendonly yes --appendfsync always & until redis-cli -s s ping >/dev/null 2>&1; do :; done; for k in 1 2 3 4 5; do redis-cli -s s SET k$k v >/dev/null; done; redis-cli -s s shutdown nosave; wait",
                ["fdatasync appendonly.aof.N.incr.aof", "fdatasync file"],
                ["the statement ran 6 times, before 1", ""],
            ),
            Regression(
                "redis-server --port 0 --unixsocket $PWD/s --dir $PWD --save '' --logfile log --appendonly yes --appendfsync no & until redis-cli -s s ping >/dev/null 2>&1; do :; done; for k in 1 2 3 4 5; do redis-cli -s s SET k$k v >/dev/null; done; redis-cli -s s shutdown save; wait",
                ["f", "executions"],
                ["the statement is new: it ran 1 time", "fsync temp-N.rdb"],
            ),
        ],
    },
    Program {
        name: "tar",
        needs: &["tar"],
        files: &[],
        prepare: "rm -rf d; mkdir d; for i in 1 2 3 4 5 6 7 8; do seq 2000 > d/$i; done",
        line: "tar cf t.tar d",
        regressions: &[
            Regression("tar cf t.tar --blocking-factor=1 d", ["", "write file"], ["", ""]),
            Regression("tar cf t.tar d && tar rf t.tar d", ["", "write file"], ["", "open file"]),
        ],
    },
    Program {
        name: "sort",
        needs: &["sort"],
        files: &[],
        prepare: "seq 20000 > big",
        line: "sort -n -S 50M -o sorted big",
        regressions: &[
            Regression("sort -n -S 50K -o sorted big", ["", "unlink file"], ["", "write file"]),
            Regression("sort -n -S 50M big | dd of=sorted bs=512 status=none", ["", "write file"], ["", ""]),
        ],
    },
    Program {
        name: "dd",
        needs: &["dd"],
        files: &[],
        prepare: "rm -f f; dd if=/dev/zero of=src bs=4096 count=64 status=none",
        line: "dd if=src of=f bs=64k status=none",
        regressions: &[
            Regression(
                "dd if=src of=f bs=64k oflag=dsync status=none",
                ["write f", "executions"],
                ["the statement is new: it ran 4 times", ""],
            ),
            Regression(
                "dd if=src of=f bs=64k conv=fsync status=none",
                ["fsync f", "executions"],
                ["the statement is new: it ran 1 time", ""],
            ),
            Regression("dd if=src of=f bs=512 status=none", ["", "write file"], ["", "read file"]),
        ],
    },
    Program {
        name: "dpkg",
        needs: &["dpkg", "dpkg-deb"],
        files: &[],
        prepare: "rm -rf a i p; mkdir -p a/info a/updates a/triggers i p/DEBIAN p/opt; touch a/status a/available; printf 'Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: x\\n' > p/DEBIAN/control; for n in 1 2 3 4; do echo $n > p/opt/$n; done; dpkg-deb -b p p.deb >/dev/null",
        line: "dpkg --admindir=a --instdir=i --log=/dev/null --force-unsafe-io,not-root,script-chrootless -i p.deb >/dev/null",
        regressions: &[
            Regression(
                "dpkg --admindir=a --instdir=i --log=/dev/null --refuse-unsafe-io --force-not-root,script-chrootless -i p.deb >/dev/null",
                ["", ""],
                ["", "fsync N.dpkg-new"],
            ),
            Regression(
                "dpkg --admindir=a --instdir=i --log=/dev/null --force-unsafe-io,not-root,script-chrootless -i p.deb >/dev/null; dpkg --admindir=a --instdir=i --log=/dev/null --force-unsafe-io,not-root,script-chrootless -i p.deb >/dev/null",
                ["fsync", "fsync"],
                ["the statement ran", ""],
            ),
        ],
    },
];

impl Program {
    fn line(line: &str) -> String {
        line.replace("$GIT", GIT_COMMAND)
    }
}

/// Why a program cannot be tested here.
pub fn needs(name: &str) -> Result<(), String> {
    root()?;
    let program = SEEDED_PROGRAMS.iter().find(|p| p.name == name).ok_or("no such program")?;
    program.needs.iter().try_for_each(|needed| installed(needed))?;
    let import = || Command::new("/usr/bin/python3").args(["-c", "import django"]).output();
    if name == "django" && !import().is_ok_and(|output| output.status.success()) {
        Err("python3-django is not installed".into())
    } else {
        Ok(())
    }
}

/// Learns a program's contract, and checks that it holds, and that each regression is found and named.
pub fn regressions_are_found(name: &str) -> Result<()> {
    let program = SEEDED_PROGRAMS.iter().find(|p| p.name == name).context("no such program")?;
    let directory = tempfile::tempdir()?;
    let here = directory.path();
    for (file, content) in program.files {
        let path = here.join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(path, content)?;
    }
    record_contract(here, &["--prepare", program.prepare], &["sh", "-c", &Program::line(program.line)])?;
    assert_passes(here)?;
    for Regression(line, [statement, what], [because, somewhere]) in program.regressions {
        let outcome = assert_fails(here, &[], &["sh", "-c", &Program::line(line)])?;
        println!("{name}: {}; {}", text(&outcome, "first"), text(&outcome, "because"));
        let first = &outcome["differences"][0];
        let named = text(first, "statement").starts_with(statement)
            && text(first, "what").starts_with(what)
            && text(&outcome, "because").contains(because)
            && outcome["differences"].to_string().contains(somewhere);
        ensure!(named, "{line}: {outcome}");
    }
    // The failed checks did not modify the contract.
    let again = check_command(here, &[], &[])?;
    ensure!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    Ok(())
}
