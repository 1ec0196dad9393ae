//! Unwind information whose evaluation may never end.
//!
//! A rule in `.eh_frame` may be an expression, a small program (DWARF 5, 2.5), which the unwinder evaluates without counting its steps.
//! One that jumps back may run forever, and the files are untrusted. No compiler emits rules with jumps, so those are not evaluated; nor
//! are entries so long that reading them for each stack would take seconds.

use super::section::Section;
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, CieOrFde, EhFrame, EhFrameHdr, Encoding, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Operation, RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _,
    UnwindTableRow,
};

/// Maximum size of an entry that is read. Those of compilers have some hundred bytes.
const ENTRY_BYTES_MAX: usize = 256 << 10;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The sections of a file, as the unwinder reads them.
pub struct UnwindSections<'a> {
    frame: EhFrame<Reader<'a>>,
    bases: BaseAddresses,
}

impl<'a> UnwindSections<'a> {
    /// Creates it from these sections.
    pub fn new(frame: &'a Section, header: Option<&'a Section>) -> Self {
        let bases = BaseAddresses::default().set_eh_frame(frame.addresses.start).set_text(0).set_got(0);
        let bases = header.map_or(bases.clone(), |header| bases.set_eh_frame_hdr(header.addresses.start));
        Self { frame: EhFrame::new(&frame.bytes, LittleEndian), bases }
    }

    /// Returns the entry for an address, as linked, from the header's table.
    fn entry(&self, header: &'a Section, address: u64) -> Option<FrameDescriptionEntry<Reader<'a>>> {
        let parsed = EhFrameHdr::new(&header.bytes, LittleEndian).parse(&self.bases, 8).ok()?;
        let table = parsed.table()?;
        let offset = table.pointer_to_offset(table.lookup(address, &self.bases).ok()?).ok()?;
        self.frame.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()
    }

    /// Calls `ask` with the rules at an address, as linked; `None` if there are none, or they are not read.
    pub fn with_row<T>(
        &self,
        header: &'a Section,
        address: u64,
        ask: impl FnOnce(&FrameDescriptionEntry<Reader<'a>>, &UnwindTableRow<usize>) -> T,
    ) -> Option<T> {
        let fde = self.entry(header, address).filter(is_short)?;
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&self.frame, &self.bases, &mut context, address).ok()?;
        Some(ask(&fde, row))
    }

    /// Whether the rules at an address, as linked, can be evaluated safely.
    pub fn is_safe_at(&self, header: &'a Section, address: u64) -> bool {
        let Some(fde) = self.entry(header, address) else { return true };
        is_short(&fde)
            && self.with_row(header, address, |fde, row| self.is_safe_row(fde.cie().encoding(), row)).unwrap_or(true)
    }

    fn is_safe_row(&self, encoding: Encoding, row: &UnwindTableRow<usize>) -> bool {
        let cfa = match row.cfa() {
            CfaRule::Expression(expression) => self.has_no_jumps(encoding, expression),
            CfaRule::RegisterAndOffset { .. } => true,
        };
        cfa && row.registers().all(|(_, rule)| match rule {
            RegisterRule::Expression(expression) | RegisterRule::ValExpression(expression) => {
                self.has_no_jumps(encoding, expression)
            }
            _ => true,
        })
    }

    /// Whether all rules can be evaluated safely: for sections without a header.
    pub fn all_safe(&self) -> bool {
        let mut entries = self.frame.entries(&self.bases);
        // What cannot be read is not evaluated either.
        while let Ok(Some(entry)) = entries.next() {
            let ended = match entry {
                CieOrFde::Cie(cie) => {
                    cie.entry_len() <= ENTRY_BYTES_MAX
                        && self.are_safe_instructions(cie.encoding(), cie.instructions(&self.frame, &self.bases))
                }
                CieOrFde::Fde(partial) => match partial.parse(EhFrame::cie_from_offset) {
                    Ok(fde) => {
                        is_short(&fde)
                            && self
                                .are_safe_instructions(fde.cie().encoding(), fde.instructions(&self.frame, &self.bases))
                    }
                    Err(_) => true,
                },
            };
            if !ended {
                return false;
            }
        }
        true
    }

    fn are_safe_instructions(
        &self,
        encoding: Encoding,
        mut all: gimli::CallFrameInstructionIter<'_, Reader<'a>>,
    ) -> bool {
        while let Ok(Some(instruction)) = all.next() {
            use CallFrameInstruction::{DefCfaExpression, Expression, ValExpression};
            let (DefCfaExpression { expression } | Expression { expression, .. } | ValExpression { expression, .. }) =
                instruction
            else {
                continue;
            };
            if !self.has_no_jumps(encoding, &expression) {
                return false;
            }
        }
        true
    }

    /// Whether an expression has no jumps. A forward jump could land within an operation, and jump back from there.
    fn has_no_jumps(&self, encoding: Encoding, expression: &UnwindExpression<usize>) -> bool {
        let Ok(expression) = expression.get(&self.frame) else { return true };
        let mut operations = expression.operations(encoding);
        loop {
            match operations.next() {
                Ok(Some(Operation::Bra { .. } | Operation::Skip { .. })) => return false,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return true,
            }
        }
    }
}

fn is_short(fde: &FrameDescriptionEntry<Reader<'_>>) -> bool {
    fde.entry_len() <= ENTRY_BYTES_MAX && fde.cie().entry_len() <= ENTRY_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::section::Bytes;

    const FRAME_ADDRESS: u64 = 0x1000;
    const HEADER_ADDRESS: u64 = 0x2000;
    const FUNCTION_ADDRESS: u64 = 0x4000;

    fn section(address: u64, bytes: Vec<u8>) -> Section {
        Section { addresses: address..address + bytes.len() as u64, bytes: Bytes::from(&*bytes) }
    }

    /// Creates a function of 64 bytes whose caller's frame is given by an expression, with padding.
    fn sections(expression: &[u8], padding: usize) -> (Section, Section) {
        let entry = |body: Vec<u8>| [(body.len() as u32).to_le_bytes().to_vec(), body].concat();
        // Identifier, version, no augmentation, alignment of code and data, the register of the return address.
        let mut frame = entry([0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0].to_vec());
        let (at, cie) = (frame.len() as u64, frame.len() as u32 + 4);
        let mut body =
            [cie.to_le_bytes().to_vec(), FUNCTION_ADDRESS.to_le_bytes().to_vec(), 64_u64.to_le_bytes().to_vec()]
                .concat();
        // DW_CFA_def_cfa_expression.
        body.extend([&[0x0f, expression.len() as u8][..], expression].concat());
        body.extend(vec![0; padding]);
        frame.extend(entry(body));
        frame.extend([0; 4]);
        // Version, encodings; the section's place, the number of entries, and the only one: relative to the header.
        let word = |value: i64| (value as i32).to_le_bytes().to_vec();
        let header = [
            vec![1, 0x03, 0x03, 0x3b],
            word(FRAME_ADDRESS as i64),
            word(1),
            word(FUNCTION_ADDRESS as i64 - HEADER_ADDRESS as i64),
            word((FRAME_ADDRESS + at) as i64 - HEADER_ADDRESS as i64),
        ];
        (section(FRAME_ADDRESS, frame), section(HEADER_ADDRESS, header.concat()))
    }

    #[test]
    fn rules_that_jump_are_not_followed() {
        for (ends, expression) in [
            (true, &[0x77, 8][..]),
            (true, &[0x77, 8, 0x80, 0, 0x1a]),
            // DW_OP_skip back to itself; DW_OP_bra; forward into the middle of a constant.
            (false, &[0x2f, 0xfd, 0xff]),
            (false, &[0x31, 0x28, 0xfc, 0xff]),
            (false, &[0x2f, 1, 0, 0x0e, 0x2f, 0xfd, 0xff, 0, 0, 0, 0, 0]),
        ] {
            let (frame, header) = sections(expression, 0);
            let frames = UnwindSections::new(&frame, Some(&header));
            assert!(
                frames.with_row(&header, FUNCTION_ADDRESS + 5, |_, _| ()).is_some(),
                "{expression:x?}: it is found"
            );
            assert_eq!(frames.is_safe_at(&header, FUNCTION_ADDRESS + 5), ends, "{expression:x?}");
            assert_eq!(UnwindSections::new(&frame, None).all_safe(), ends, "{expression:x?}");
        }
        let (frame, header) = sections(&[0x77, 8], ENTRY_BYTES_MAX);
        assert!(
            !UnwindSections::new(&frame, Some(&header)).is_safe_at(&header, FUNCTION_ADDRESS)
                && !UnwindSections::new(&frame, None).all_safe()
        );
    }
}
