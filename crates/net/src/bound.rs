//! What a loss rate allows: the highest throughput that TCP with additive increase and halving reaches on a path that loses
//! packets at random. Pure.
//!
//! - Mathis, Semke, Mahdavi and Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR 27(3), 1997:
//!   MSS / RTT x sqrt(3 / (2 b p)), with b segments per acknowledgement.
//! - Padhye, Firoiu, Towsley and Kurose, "Modeling TCP throughput", SIGCOMM 1998, equation 30, which adds timeouts; it is
//!   more accurate from 2 % of loss on.
//!
//! **Uncertainty.** Both describe Reno. They bound Cubic only where its window is small (RFC 9438, 4.3); on long fast paths
//! Cubic exceeds them, and BBR ignores loss. So a bound supports a measurement; it is no verdict.

/// Segments that one acknowledgement covers (delayed acknowledgements, RFC 1122).
const SEGMENTS_PER_ACK: f64 = 2.0;

/// Mathis' bound in bit/s; `None` without loss or time.
pub fn mathis(mss_bytes: f64, rtt_s: f64, loss: f64) -> Option<f64> {
    has_bound(mss_bytes, rtt_s, loss).then(|| mss_bytes * 8.0 / rtt_s * (1.5 / (SEGMENTS_PER_ACK * loss)).sqrt())
}

/// Padhye's bound in bit/s, with a retransmission timeout of `rto_s`; `None` without loss or time.
pub fn padhye(mss_bytes: f64, rtt_s: f64, rto_s: f64, loss: f64) -> Option<f64> {
    let timeout =
        rto_s * (3.0 * (3.0 * SEGMENTS_PER_ACK * loss / 8.0).sqrt()).min(1.0) * loss * (1.0 + 32.0 * loss * loss);
    has_bound(mss_bytes, rtt_s, loss)
        .then(|| mss_bytes * 8.0 / (rtt_s * (2.0 * SEGMENTS_PER_ACK * loss / 3.0).sqrt() + timeout))
}

/// The throughput of Cubic outside its Reno-friendly region, bit/s: the mean window of RFC 9438, section 5.1, with C = 0.4
/// and a window reduced to 0.7; `None` without loss or time.
pub fn cubic(mss_bytes: f64, rtt_s: f64, loss: f64) -> Option<f64> {
    let segments = (0.4_f64 * 3.7 / (4.0 * 0.3)).powf(0.25) * rtt_s.powf(0.75) / loss.powf(0.75);
    has_bound(mss_bytes, rtt_s, loss).then(|| segments * mss_bytes * 8.0 / rtt_s)
}

fn has_bound(mss: f64, rtt: f64, loss: f64) -> bool {
    mss > 0.0 && rtt > 0.0 && loss > 0.0 && loss < 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_match_hand_computed_values() {
        // 1460 bytes, 100 ms, 1 %: 116.8 kb/s x sqrt(75) = 1.0115 Mb/s.
        let m = mathis(1460.0, 0.1, 0.01).unwrap();
        assert!((m - 1_011_517.0).abs() < 100.0, "{m}");
        // Denominator: 0.1 x sqrt(0.013333) + 0.2 x 3 x sqrt(0.0075) x 0.01 x 1.0032 = 0.0115470 + 0.0005213.
        let p = padhye(1460.0, 0.1, 0.2, 0.01).unwrap();
        assert!((p - 11_680.0 / 0.012_068_3).abs() < 200.0, "{p}");
        // RFC 9438, table 1: at 0.1 s and a loss of 1e-4 cubic's mean window is 187 segments.
        let c = cubic(1460.0, 0.1, 1e-4).unwrap();
        assert!((c * 0.1 / 11_680.0 - 187.0).abs() < 1.0, "{c}");
        assert!(mathis(1460.0, 0.1, 0.0).is_none() && padhye(0.0, 0.1, 0.2, 0.1).is_none());
    }

    #[test]
    fn timeouts_lower_the_bound() {
        for loss in [0.0001, 0.001, 0.01, 0.1, 0.3] {
            let (m, p) = (mathis(1000.0, 0.05, loss).unwrap(), padhye(1000.0, 0.05, 0.2, loss).unwrap());
            assert!(p < m, "{loss}");
        }
    }
}
