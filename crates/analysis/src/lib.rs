//! Archives to summaries: what statements, files and gaps mean.
