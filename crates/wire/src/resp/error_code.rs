//! The first word of an error reply, by which INFO counts errors.

use super::error::ErrorReply;

macro_rules! codes {
    ($($id:ident = $name:literal;)*) => {
        /// The first word of an error reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $name, "`")] $id,)*
        }

        impl ErrorCode {
            /// The number of codes.
            pub const COUNT: usize = [$(ErrorCode::$id),*].len();

            /// All codes, by name.
            pub const ALL: [ErrorCode; ErrorCode::COUNT] = [$(ErrorCode::$id),*];

            /// Its text in the reply.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$id => $name,)*
                }
            }
        }
    };
}

codes! {
    Ask = "ASK";
    BusyKey = "BUSYKEY";
    ClusterDown = "CLUSTERDOWN";
    CrossSlot = "CROSSSLOT";
    Err = "ERR";
    ExecAbort = "EXECABORT";
    MisConf = "MISCONF";
    Moved = "MOVED";
    NoAuth = "NOAUTH";
    NoPerm = "NOPERM";
    NoProto = "NOPROTO";
    NoReplicas = "NOREPLICAS";
    Oom = "OOM";
    TryAgain = "TRYAGAIN";
    Uncertain = "UNCERTAIN";
    WrongPass = "WRONGPASS";
}

impl ErrorCode {
    /// Whether it means that a command was not begun.
    pub fn is_rejection(self) -> bool {
        !matches!(
            self,
            ErrorCode::Err
                | ErrorCode::BusyKey
                | ErrorCode::ExecAbort
                | ErrorCode::NoProto
                | ErrorCode::Uncertain
                | ErrorCode::WrongPass
        )
    }
}

impl ErrorReply<'_> {
    /// Its first word.
    pub fn code(&self) -> ErrorCode {
        match self {
            ErrorReply::OutOfMemory => ErrorCode::Oom,
            ErrorReply::LogFailed => ErrorCode::MisConf,
            ErrorReply::DeniedExec | ErrorReply::NoAuthExec | ErrorReply::ExecAbort => {
                ErrorCode::ExecAbort
            }
            ErrorReply::BusyKey => ErrorCode::BusyKey,
            ErrorReply::NoAuth | ErrorReply::HelloNoAuth => ErrorCode::NoAuth,
            ErrorReply::WrongPassword => ErrorCode::WrongPass,
            ErrorReply::NoProtocol => ErrorCode::NoProto,
            ErrorReply::CrossSlot => ErrorCode::CrossSlot,
            ErrorReply::TryAgain | ErrorReply::SlotLost => ErrorCode::TryAgain,
            ErrorReply::Uncertain => ErrorCode::Uncertain,
            ErrorReply::SlotNotServed | ErrorReply::ClusterDown => ErrorCode::ClusterDown,
            ErrorReply::NoReplicas => ErrorCode::NoReplicas,
            ErrorReply::Moved(_) => ErrorCode::Moved,
            ErrorReply::Ask(_) => ErrorCode::Ask,
            ErrorReply::Denied(_) => ErrorCode::NoPerm,
            _ => ErrorCode::Err,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_first_word_of_the_reply() {
        let elsewhere = crate::resp::Elsewhere { slot: 1, host: "h", port: 2 };
        for error in [
            ErrorReply::Syntax,
            ErrorReply::OutOfMemory,
            ErrorReply::LogFailed,
            ErrorReply::DeniedExec,
            ErrorReply::NoAuthExec,
            ErrorReply::ExecAbort,
            ErrorReply::BusyKey,
            ErrorReply::NoAuth,
            ErrorReply::HelloNoAuth,
            ErrorReply::WrongPassword,
            ErrorReply::NoProtocol,
            ErrorReply::CrossSlot,
            ErrorReply::TryAgain,
            ErrorReply::SlotLost,
            ErrorReply::Uncertain,
            ErrorReply::SlotNotServed,
            ErrorReply::ClusterDown,
            ErrorReply::NoReplicas,
            ErrorReply::Moved(elsewhere),
            ErrorReply::Ask(elsewhere),
            ErrorReply::Denied("x"),
            ErrorReply::Other("x"),
            ErrorReply::UnknownNode(b"x"),
        ] {
            let text = error.to_string();
            assert_eq!(text.split(' ').next(), Some(error.code().name()), "{text}");
        }
    }

    #[test]
    fn codes_are_sorted_and_each_is_its_own_place() {
        assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.name()));
        assert!(ErrorCode::ALL.iter().enumerate().all(|(at, code)| *code as usize == at));
    }
}
