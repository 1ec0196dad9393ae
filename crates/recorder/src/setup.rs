//! Everything needed before a recording begins: the command, held before its first instruction, and the probes.

use crate::inside::{self, Preparation, Watch};
use crate::libraries::Libraries;
use crate::request::{Probes, Request};
use crate::{Error, ErrorContext, Notice, Notify, Result, functions};
use capture::launch::{self, Child};
use capture::marks::Marks;
use capture::request::Function;
use capture::{Inside, Session};
use model::Absence;
use model::table::Coverage;

/// Room for marks: 64 bytes each, used as they are written.
const MARKS_MAX: u64 = 1 << 20;

/// The command and everything that observes it.
pub struct Setup {
    pub marks: Marks,
    pub child: Option<Child>,
    pub session: Session,
    pub libraries: Libraries,
}

impl Setup {
    /// Starts the command and attaches the probes. `hollow`: they record nothing.
    pub fn new(request: &Request, hollow: bool, notify: Notify<'_>) -> Result<Self> {
        let mut probes = request.probe_request(hollow)?;
        let inside =
            if hollow { Err("nothing is recorded".into()) } else { inside::prepare(request, &mut probes.functions) };
        if inside.is_err() {
            probes.functions.iter_mut().for_each(|function| function.inside = None);
        }
        probes.inside = inside.is_ok();
        probes.functions_later = inside.is_ok() && request.pids().iter().any(|pid| inside::may_unwind(*pid));
        if let (Probes::Inside, Err(outside)) = (request.probes, &inside)
            && !outside.is_tolerated()
        {
            return Err(Error::NotInside { why: outside.why.clone() });
        }
        // Before the probes: their hundred files would enlarge the child's table of open files, which is small in the untraced
        // arm of a comparison.
        let (marks, child) = hold_command(request, inside.as_ref().ok().map(|(inside, _)| inside))?;
        if child.is_some() {
            probes.marks = Some(marks.identity().doing(|| "examining the memory for the command's marks".into())?);
        }
        let mut session = Session::start(&probes)?;
        for function in &probes.functions {
            let probe = format!("{}:{}", function.path.to_string_lossy(), function.name);
            if let Some(row) = session.coverage().iter().find(|row| row.probe == probe && !row.attached) {
                let why = functions::why_not(&function.path, &function.name, &row.how);
                return Err(Error::Function { function: probe, why });
            }
        }
        let watch = start_watch(&mut session, inside);
        let mut libraries = Libraries::attach(&mut session, request, watch)?;
        let all_inside = !request.pids().is_empty() && libraries.inside.all_attached();
        if probes.functions_later && all_inside {
            libraries.inside.without_uprobes(&probes.functions);
        } else if probes.functions_later {
            session.attach_functions(&probes.functions);
        }
        let probed_outside = |function: &&Function| {
            let outside = function.inside.is_none() || !request.pids().is_empty() && !all_inside;
            outside && functions::may_throw(&function.path)
        };
        for function in probes.functions.iter().filter(probed_outside) {
            notify(Notice::MayThrow { path: function.path.clone(), function: function.name.clone() });
        }
        Ok(Self { marks, child, session, libraries })
    }
}

/// Lets the command run, loading the object into it if no loader does.
pub fn release_command(child: &mut Child, session: &mut Session, libraries: &mut Libraries) -> Result<()> {
    if let Some(inside) = session.inside().filter(|inside| inside.follows()) {
        match child.release_followed(inside.implanter())? {
            Ok(follower) => inside.follow(follower),
            Err(why) => libraries.inside.not_followed(&why),
        }
        return Ok(());
    }
    let Some(inside) = session.inside().filter(|inside| inside.implants()) else { return Ok(child.release()?) };
    let outcome = child.release_stopped(|pid| inside.implant(pid))?;
    libraries.inside.implanted(child.pid(), outcome);
    Ok(())
}

/// Connects the session to what is probed inside, if anything is.
fn start_watch(session: &mut Session, inside: Preparation) -> Watch {
    let begun = inside.and_then(|(inside, refused)| {
        session.probe_inside(inside).map(|()| refused).map_err(|why| why.to_string().into())
    });
    match begun {
        Ok(refused) => {
            let mut watch = Watch::default();
            watch.refused(refused);
            watch.watch_named(session);
            watch
        }
        Err(why) => Watch::none(&why),
    }
}

/// Creates the child that becomes the command, as the user who called sudo, and the memory for its marks.
pub fn hold_command(request: &Request, inside: Option<&Inside>) -> Result<(Marks, Option<Child>)> {
    let marks = Marks::create(MARKS_MAX).doing(|| "making room for the command's marks".into())?;
    if request.command().is_empty() {
        return Ok((marks, None));
    }
    let mut plan = launch::Command::new(request.command())?.marks(marks.fd());
    if let Some(inside) = inside {
        plan = plan.env("LD_PRELOAD", &inside.preload(std::env::var_os("LD_PRELOAD")));
    }
    if !request.as_root
        && let Some(user) = launch::User::sudo_caller()?
    {
        plan = plan.as_user(user);
    }
    let child = plan.spawn()?;
    Ok((marks, Some(child)))
}

/// Reports the probes that the kernel forbids, at once, since a layer that cannot be observed looks like one without
/// activity.
pub fn report_refusals(coverage: &[Coverage], notify: Notify<'_>) {
    let mut refused = coverage.iter().filter(|row| row.absence == Some(Absence::NotPermitted));
    if let Some(first) = refused.next() {
        let (probe, how) = (first.probe.clone(), first.how.clone());
        notify(Notice::ProbesRefused { count: 1 + refused.count(), probe, how });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Layer;

    #[test]
    fn only_forbidden_probes_are_reported() {
        let row = |probe: &str, absence, how: &str| Coverage::absent(Layer::Driver, probe, absence, how);
        let rows = [
            row("missing", Absence::Failed, "cannot open a file: Permission denied"),
            row("forbidden", Absence::NotPermitted, "Operation not permitted"),
            row("also_forbidden", Absence::NotPermitted, "the kernel rejected the program"),
            Coverage::attached(
                Layer::Driver,
                "attached_otherwise",
                "uprobe at 0x10, since uprobe_multi: Operation not permitted",
            ),
        ];
        let notices = std::cell::RefCell::new(Vec::new());
        report_refusals(&rows, &|notice| notices.borrow_mut().push(notice));
        let notices = notices.into_inner();
        assert!(
            matches!(&notices[..], [Notice::ProbesRefused { count: 2, probe, how }]
                if probe == "forbidden" && how == "Operation not permitted"),
            "{notices:?}"
        );
        report_refusals(&rows[..1], &|notice| panic!("{notice:?}"));
    }
}
