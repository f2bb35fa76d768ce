//! Messages that are kept until a program asks for them.

use std::collections::VecDeque;

use crate::message::OwnedMessage;

/// A queue of messages that take a limited number of bytes. The oldest make room for the newest.
#[derive(Debug)]
pub struct KeptMessages {
    messages: VecDeque<OwnedMessage>,
    bytes: usize,
    limit: usize,
    lost: u64,
}

impl KeptMessages {
    /// An empty queue for this many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
            limit,
            lost: 0,
        }
    }

    /// Adds a message. The newest message is kept whatever it takes.
    pub fn push(&mut self, message: OwnedMessage) {
        self.bytes += message.size();
        self.messages.push_back(message);
        while self.bytes > self.limit && self.messages.len() > 1 {
            self.pop();
            self.lost += 1;
        }
    }

    /// Takes the oldest message.
    pub fn pop(&mut self) -> Option<OwnedMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.size();
        Some(message)
    }

    /// Count of messages that made room for others.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
