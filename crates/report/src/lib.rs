//! An archive as one HTML page.
