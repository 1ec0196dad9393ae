//! State that all trackers share while an event is processed: the configuration, the time, span numbers, the losses and the
//! sink. No linking logic.

use crate::loss::{Losses, Window};
use crate::{Config, Sink};
use model::table::{Link, Span};
use model::{Confidence, Layer, Relation};
use std::borrow::Cow;

/// State kept between events.
#[derive(Debug)]
pub(crate) struct SharedState {
    config: Config,
    now_ns: u64,
    spans: u64,
    losses: Losses,
}

impl SharedState {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, now_ns: 0, spans: 0, losses: Losses::default() }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    #[inline]
    pub(crate) fn context<'a>(&'a mut self, sink: &'a mut dyn Sink) -> Context<'a> {
        let Self { config, now_ns, spans, losses } = self;
        Context { config, now_ns: *now_ns, clock: now_ns, losses, sink, spans }
    }

    pub(crate) fn len(&self) -> usize {
        self.losses.len()
    }
}

/// What a tracker is given in addition to its event.
pub(crate) struct Context<'a> {
    pub config: &'a Config,
    /// The time of the latest event.
    pub now_ns: u64,
    pub losses: &'a mut Losses,
    pub sink: &'a mut dyn Sink,
    clock: &'a mut u64,
    spans: &'a mut u64,
}

impl Context<'_> {
    /// Advances the clock, which never goes back.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        *self.clock = self.now_ns;
    }

    #[inline]
    pub(crate) fn new_span(&mut self) -> u64 {
        *self.spans += 1;
        *self.spans
    }

    /// Writes a link, if both its ends are known, with its confidence.
    pub(crate) fn link(
        &mut self,
        parent: u64,
        child: u64,
        relation: Relation,
        confidence: Confidence,
        window: Window,
    ) -> Confidence {
        let confidence = self.config.at_most(relation, confidence);
        let (confidence, weakened_by) = self.losses.weaken(confidence, window);
        if parent != 0 && child != 0 && parent != child {
            self.sink.link(Link { parent, child, relation, confidence, weakened_by });
        }
        confidence
    }
}

/// Creates a span of which only the beginning is known.
pub(crate) fn span(id: u64, layer: Layer, kind: &'static str, start_ns: u64, tgid: u32, tid: u32) -> Span {
    Span {
        id,
        layer,
        kind: Cow::Borrowed(kind),
        start_ns,
        end_ns: None,
        tgid,
        tid,
        operation: None,
        file: None,
        offset: None,
        disk: None,
        sector: None,
        bytes: 0,
        result: None,
        number: None,
        cache_added: None,
        flags: Cow::Borrowed(""),
    }
}
