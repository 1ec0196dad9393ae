//! Causes that are injected, and the finding that `fathom explain` must put first.
