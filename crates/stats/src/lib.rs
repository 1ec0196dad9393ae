//! Numerics: estimates with intervals; pure and seeded.
