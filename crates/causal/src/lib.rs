//! Events to spans, links and causes; streaming and pure.
