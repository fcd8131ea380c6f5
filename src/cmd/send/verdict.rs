//! What a test delivery has shown, and what to do next.

/// The result of a test delivery.
pub(super) struct Verdict {
    pub(super) good: bool,
    pub(super) text: String,
    /// The next command or step for the operator.
    pub(super) next: String,
}

impl Verdict {
    pub(super) fn new(good: bool, text: impl Into<String>, next: String) -> Self {
        Verdict { good, text: text.into(), next }
    }
}
