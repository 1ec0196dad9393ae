//! The same kernels in safe Rust, operation for operation in the order of the C, so that every bit of the results is
//! the same. rustc neither contracts nor reorders floating-point arithmetic.

pub mod himeno;
pub mod linpack;
pub mod scimark;

/// Returns the evidence that these functions were compiled as in a release.
///
/// # Errors
/// The contradiction.
pub fn proof() -> Result<String, crate::UnprovenMode> {
    let level = env!("FATHOM_OPT_LEVEL");
    let checks = if cfg!(debug_assertions) { "on" } else { "off" };
    let text = format!("{}; opt-level {level}, debug assertions and overflow checks {checks}", env!("FATHOM_RUSTC"));
    if level == "3" && !cfg!(debug_assertions) { Ok(text) } else { Err(crate::UnprovenMode(text)) }
}
