//! The store, through its front.
