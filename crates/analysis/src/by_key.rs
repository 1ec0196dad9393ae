//! Rows of one table by positions in another one: two arrays of positions, instead of a list for each key.

/// Rows of one table, indexed by positions in another one.
#[derive(Debug)]
pub struct RowsByKey {
    first: Vec<u32>,
    rows: Vec<u32>,
}

impl RowsByKey {
    /// Indexes these pairs of key and row.
    pub fn new(keys: usize, pairs: impl Iterator<Item = (usize, u32)> + Clone) -> Self {
        let mut first = vec![0_u32; keys + 1];
        pairs.clone().for_each(|(key, _)| first[key + 1] += 1);
        (0..keys).for_each(|key| first[key + 1] += first[key]);
        let mut next = first.clone();
        let mut rows = vec![0; first[keys] as usize];
        for (key, row) in pairs {
            rows[next[key] as usize] = row;
            next[key] += 1;
        }
        // Every key's rows end where the next one's begin: both passes saw the same pairs.
        debug_assert!(next.iter().zip(&first[1..]).all(|(end, begin)| end == begin));
        Self { first, rows }
    }

    /// The rows of a key, in the order in which they were given.
    pub fn rows_of(&self, key: usize) -> &[u32] {
        &self.rows[self.first[key] as usize..self.first[key + 1] as usize]
    }
}
