//! Writes the figures of docs/results/coverage.md: how often the method meets its guarantees, for each shape.
//!
//! ```sh
//! cargo run --release --package stats --example coverage > docs/results/coverage.md
//! ```

use stats::cells::Pairing;
use stats::simulation::{BLOCKS_DEFAULT, Coverage, SHAPES, Shape, coverage, simulate_suite};

const TRIAL_COUNT: u64 = 4000;
const SEED: u64 = 14;
const SUITE_COUNT: u64 = 300;

fn main() {
    println!(
        "<!-- Written by `cargo run --release --package stats --example coverage > docs/results/coverage.md`. Do not edit. -->\n\n\
         # How often intervals hold, by simulation\n\n\
         {TRIAL_COUNT} made-up experiments a cell of these tables (seed {SEED}; a share near 0.95 is known to ± 0.007, one near 0.8 to ± 0.013), of which the\n\
         truth is known. The shapes of the noise and how they are scaled: `crates/stats/src/simulation.rs`. The margin is 2 %.\n\n\
         * **cell**: the 95 % interval of a cell holds the median of its processes;\n\
         * **ratio**: that of two cells holds the true ratio (3 % either way, and 1);\n\
         * **A/A**: a thing is called faster or slower than itself;\n\
         * **3 %**: a difference of 3 % is told, and the right way round. It never was the wrong way round.\n"
    );
    println!("## {BLOCKS_DEFAULT} blocks, the default\n");
    println!("| noise | cell | ratio within blocks | A/A | 3 % | ratio of two archives | A/A | 3 % |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for shape in SHAPES {
        let blocks = coverage(shape, BLOCKS_DEFAULT, Pairing::Blocks, TRIAL_COUNT, SEED);
        let apart =
            (!shape.changes_over_time()).then(|| coverage(shape, BLOCKS_DEFAULT, Pairing::Unpaired, TRIAL_COUNT, SEED));
        assert!(blocks.wrong == 0.0 && blocks.beyond == 0.0, "{shape:?}: {blocks:?}");
        let of = |k: &Coverage| format!("{:.3} | {:.3} | {:.3}", k.ratio, k.alarms, k.power);
        let apart = apart.as_ref().map_or_else(|| "not linked | | ".into(), of);
        println!("| {} | {:.3} | {} | {apart} |", shape.about(), blocks.cell, of(&blocks));
    }
    println!(
        "\nWhere the machine changes during the run, blocks differ, and their mixture scatters less than as many draws of it would: the \
         interval of the\ncell holds more often than it says. Two archives of such a machine are not linked by anything, and their ratio \
         contains the change.\n"
    );
    println!("## Fewer blocks, and more\n");
    println!("| noise | blocks | cell | ratio within blocks | 3 % | ratio of two archives | 3 % |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for shape in [Shape::Normal, Shape::Disturbed, Shape::Modes] {
        for blocks in [5, 6, 8, 10, 12, 16, 20, 30] {
            let (within, apart) = (
                coverage(shape, blocks, Pairing::Blocks, TRIAL_COUNT, SEED),
                coverage(shape, blocks, Pairing::Unpaired, TRIAL_COUNT, SEED),
            );
            println!(
                "| {} | {blocks} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} |",
                shape.about(),
                within.cell,
                within.ratio,
                within.power,
                apart.ratio,
                apart.power
            );
        }
    }
    println!(
        "\nFewer than five processes have no interval. Five have one that holds in 0.9375 (the range of the cell), and five blocks of one archive\n\
         cannot tell any difference at 0.05: 2 of 32 swaps are as extreme as can be.\n"
    );
    println!("## 160 cells, 38 of which differ by 3 %\n");
    println!("{SUITE_COUNT} suites. *Shared base*: all cells are compared with one that ran in the same blocks.\n");
    println!(
        "| noise | compared | false among those told | told of those that differ | by Holm | adjusted intervals that miss |"
    );
    println!("|---|---|---:|---:|---:|---:|");
    for shape in [Shape::Normal, Shape::Disturbed, Shape::Modes] {
        for (pairing, name) in [(Pairing::Unpaired, "two archives"), (Pairing::Blocks, "shared base")] {
            let m = simulate_suite(shape, (160, 38), BLOCKS_DEFAULT, pairing, SUITE_COUNT, SEED);
            println!(
                "| {} | {name} | {:.3} | {:.3} | {:.3} | {:.3} |",
                shape.about(),
                m.false_share,
                m.power,
                m.power_of_holm,
                m.missed
            );
        }
    }
}
