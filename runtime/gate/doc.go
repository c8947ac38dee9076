// Package gate is the one door between a request to act and a tool that acts,
// whatever asked: a command, a model's turn, an MCP client, HTTP, a schedule.
//
// A call goes through fixed stages: it is claimed under its idempotency key,
// the capability is resolved, its exposure on the surface checked, the input
// validated and made canonical, the actor checked, the policies asked, an
// approval demanded if one is needed, the execution policies asked, the start
// recorded, the handler run, its output validated and redacted, and the end
// recorded ([Gate.Invoke]). A call that needs a human ends in
// [capability.StatusApprovalRequired] and holds nothing while it waits;
// [Gate.Decide] takes the answers and [Gate.Resume] runs what was approved,
// byte for byte, once, perhaps in a later process, as the original actor.
//
// The gate fails closed: what it cannot decide or record, it does not run. What
// follows a change of state is a row that the [Ledger] writes with the change.
// If the process dies after the start was recorded, the outcome is unknown and
// stays so until a person settles it ([Gate.Settle]); only tools that write
// nothing or declare themselves idempotent are run again.
//
// Tools and policies are frozen together in a [Governance]; each call works on the
// one in force when it came ([Gate.Swap]). A tool given to it cannot be taken out,
// so nothing else can run it.
//
// Every step leaves an event in the ledger, and then in the sinks of [Audit]: at
// most once, in order, off the call's path, except that with Strict no handler is
// entered before every sink has the start. A handler that outlives its time-out
// does not hold its call; how it ends is audited late. [Gate.Drain] waits for what
// is under way, a [Gate.Scope] for its own part of it. What a process that dies
// had not yet delivered is in the ledger and not in the sinks.
//
// The gate knows neither Matrix nor SQL. A [Gate] is safe for concurrent use;
// stored times are UTC.
package gate
