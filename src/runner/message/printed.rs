//! What a command printed, told with its end: most commands print little, and to ask for it would cost
//! each of them two questions.

use serde::{Deserialize, Serialize};

use crate::runner::{Captured, Exited};

/// Most that is told with an end, in bytes of both outputs together; what is more is fetched. A page: the
/// queue of a receiver that does not read has no more than a thousand of them (R18).
pub const TOLD_BYTES: usize = 4 * 1024;

/// How both outputs lie in a frame's body: standard output, and standard error behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed([Lengths; 2]);

/// Of one output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lengths {
    /// How much of the body is its beginning.
    head: usize,
    /// How much, behind that, is its end.
    tail: usize,
    /// All there was.
    total: u64,
}

impl Printed {
    /// What a command printed, and the body that has it; nothing where it is to be fetched.
    pub(in crate::runner) fn of(exited: &Exited) -> Option<(Self, Vec<u8>)> {
        let outputs = [&exited.stdout, &exited.stderr];
        let parts = outputs.map(|output| [&output.head[..], &output.tail]);
        if parts.as_flattened().iter().map(|part| part.len()).sum::<usize>() > TOLD_BYTES {
            return None;
        }
        let lengths = |Captured { head, tail, total }: &Captured| {
            Some(Lengths { head: head.len(), tail: tail.len(), total: (*total)? })
        };
        let [stdout, stderr] = outputs.map(lengths);
        Some((Printed([stdout?, stderr?]), parts.as_flattened().concat()))
    }

    /// Standard output and standard error as this body has them; nothing where it is not theirs.
    pub fn read(self, mut body: Vec<u8>) -> Option<[Captured; 2]> {
        let mut take = |bytes| {
            let rest = (bytes <= body.len()).then(|| body.split_off(bytes))?;
            Some(std::mem::replace(&mut body, rest))
        };
        let Printed([stdout, stderr]) = self;
        let mut output = |Lengths { head, tail, total }| {
            Some(Captured { head: take(head)?, tail: take(tail)?, total: Some(total) })
        };
        let outputs = [output(stdout)?, output(stderr)?];
        body.is_empty().then_some(outputs)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runner::{Status, Usage};

    fn exited(stdout: [usize; 2], stderr: [usize; 2]) -> Exited {
        let captured = |[head, tail]: [usize; 2], byte| Captured {
            head: vec![byte; head],
            tail: vec![byte + 1; tail],
            total: Some((head + 2 * tail) as u64),
        };
        let (stdout, stderr) = (captured(stdout, b'1'), captured(stderr, b'3'));
        Exited { status: Status::Code(0), asked_by: None, usage: Usage::default(), stdout, stderr }
    }

    #[test]
    fn what_is_told_up_to_the_bound_is_what_was_printed() {
        let most = TOLD_BYTES;
        for (stdout, stderr) in [
            ([0, 0], [0, 0]),
            ([3, 0], [0, 0]),
            ([1, 2], [3, 4]),
            ([0, 0], [0, most - 1]),
            ([most, 0], [0, 0]),
            ([most / 4; 2], [most / 4; 2]),
        ] {
            let exited = exited(stdout, stderr);
            let (printed, body) = Printed::of(&exited).unwrap();
            assert!(body.len() <= TOLD_BYTES);
            assert_eq!(printed.read(body), Some([exited.stdout, exited.stderr]));
        }
        for (stdout, stderr) in
            [([most + 1, 0], [0, 0]), ([0, 0], [most, 1]), ([1, most / 2], [most / 4; 2])]
        {
            assert_eq!(Printed::of(&exited(stdout, stderr)), None, "{stdout:?} {stderr:?}");
        }
    }

    #[test]
    fn a_body_of_another_length_is_not_believed() {
        let (printed, body) = Printed::of(&exited([1, 2], [3, 4])).unwrap();
        for wrong in [0, 1, 9, 11] {
            let mut body = body.clone();
            body.resize(wrong, b'x');
            assert_eq!(printed.clone().read(body), None, "{wrong}");
        }
        let vast = format!(
            r#"[{0},{0}]"#,
            format_args!(r#"{{"head":{},"tail":1,"total":1}}"#, usize::MAX)
        );
        let vast: Printed = serde_json::from_str(&vast).unwrap();
        assert_eq!(vast.read(body), None);
    }
}
