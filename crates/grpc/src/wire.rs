//! As much of the protocol buffers' wire format as two messages need. Nothing is copied, and every
//! step moves forward, so foreign bytes cost no more than their length.

/// The value of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Of a fixed width: neither message has one.
    Fixed,
}

/// The fields of a message, in order. Ends before the first one that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The last value of field `number`, as protocol buffers have it.
    pub(crate) fn varint(self, number: u64) -> Option<u64> {
        self.filter_map(|field| match field {
            (found, Value::Varint(value)) if found == number => Some(value),
            _ => None,
        })
        .last()
    }

    /// Every value of field `number` that has a length.
    pub(crate) fn messages(self, number: u64) -> impl Iterator<Item = &'a [u8]> {
        self.filter_map(move |field| match field {
            (found, Value::Bytes(bytes)) if found == number => Some(bytes),
            _ => None,
        })
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte has room for one bit more.
            value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(index).ok()?)?;
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index + 1..)?;
                return Some(value);
            }
        }
        None
    }

    fn read_bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }

    fn read_field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.read_varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.read_varint()?),
            1 => self.read_bytes(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.read_varint()?;
                Value::Bytes(self.read_bytes(length)?)
            }
            5 => self.read_bytes(4).map(|_| Value::Fixed)?,
            // Groups have been out of use since long before gRPC.
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.read_field();
        if field.is_none() {
            self.rest = &[];
        }
        field
    }
}

/// Appends a field with a number; a zero is left out, as it is the default.
pub(crate) fn put_varint(message: &mut Vec<u8>, number: u8, value: u64) {
    if value != 0 {
        message.push(number << 3);
        put_number(message, value);
    }
}

/// Appends a field with a length.
pub(crate) fn put_bytes(message: &mut Vec<u8>, number: u8, value: &[u8]) {
    message.push(number << 3 | 2);
    put_number(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn put_number(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let fields = Fields::of(&bytes).count();
            prop_assert!(fields <= bytes.len());
        }

        #[test]
        fn what_is_written_is_read(number in 1u8..16, value: u64, bytes: Vec<u8>) {
            let mut message = Vec::new();
            put_varint(&mut message, number, value);
            put_bytes(&mut message, number, &bytes);
            prop_assert_eq!(Fields::of(&message).varint(number.into()).unwrap_or(0), value);
            let found: Vec<&[u8]> = Fields::of(&message).messages(number.into()).collect();
            prop_assert_eq!(found, vec![&bytes[..]]);
        }
    }
}
