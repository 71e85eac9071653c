//! Agents in conversation, through the doors of whole houses: histories, projects, groups, presence, calls, events.

mod houses;
mod store_fixture;

#[path = "talk/calls.rs"]
mod calls;
#[path = "talk/conversations.rs"]
mod conversations;
#[path = "talk/filing.rs"]
mod filing;
#[path = "talk/groups.rs"]
mod groups;
#[path = "talk/incidents.rs"]
mod incidents;
