//! Where progress is drawn: a line on a terminal, nothing in a pipe.

pub use archive::interrupt::end_on_signal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::Context;
use std::sync::Arc;

/// A context whose progress is drawn on stderr, if that is a terminal and `quiet` is not set.
pub fn context(quiet: bool) -> Context {
    let bar = ProgressBar::with_draw_target(
        None,
        if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) },
    );
    let (spinner, line) = (bar_style("{spinner} {msg}"), bar_style("{msg} {wide_bar:.cyan/dim} {percent:>3}%"));
    Context::new(Arc::new(move |what, done, total| {
        if what.is_empty() {
            return bar.finish_and_clear();
        }
        bar.set_style(if total == 0 { spinner.clone() } else { line.clone() });
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(done);
        // Names of files and of benchmarks are not trusted.
        bar.set_message(analysis::text::shown(what));
    }))
}

fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Ends the line that is being drawn.
pub fn clear(context: &Context) {
    context.clear_progress();
}
