//! What the guarded fetch sees of servers, certificates and name servers that lie, stall, break off or lead astray.
//!
//! Every peer is on loopback. The rules are those of the verification specification, V20 to V27, V70, V71 and V77; each row of
//! its table of client behaviour is a row here.

mod hostile;

#[path = "hostile/addresses.rs"]
mod addresses;
#[path = "hostile/answers.rs"]
mod answers;
#[path = "hostile/certificates.rs"]
mod certificates;
#[path = "hostile/deadlines.rs"]
mod deadlines;
#[path = "hostile/faults.rs"]
mod faults;
#[path = "hostile/turns.rs"]
mod turns;
