package content

import "maunium.net/go/mautrix/id"

// MaxAncestors is how many replies above a message [Root] follows.
const MaxAncestors = 32

// Lookup tells where a known event hangs. With isReply false, up is its thread
// root, the event itself when it hangs from none. With isReply true, up is the
// event it replies to, whose place decides. ok is false for an event that is not
// known. [Place] gives the first two for a parsed event.
type Lookup func(event id.EventID) (up id.EventID, isReply, ok bool)

// Place says where msg itself hangs, in the terms of [Lookup]. For an edit it
// answers as for a reply to the event it replaces.
func Place(msg *Message) (up id.EventID, isReply bool) {
	switch {
	case msg.Replaces != "":
		return msg.Replaces, true
	case msg.ThreadRoot != "":
		return msg.ThreadRoot, false
	case msg.InReplyTo != "":
		return msg.InReplyTo, true
	}
	return msg.ID, false
}

// Root finds the thread root of msg. A thread relation names it; a plain reply
// belongs to its parent's thread, or to the first ancestor that is no reply; an
// edit to the event it replaces; every other event is its own root.
//
// Where an ancestor is not known, needFetch names it: fetch it, let lookup know,
// and call again. root is then the best answer without it, which is the one to
// use when it cannot be fetched, so that no message is lost: the last event known
// on the way up, or the event an edit replaces. Chains beyond [MaxAncestors] and
// circles end the same way, with nothing to fetch. Lookup is called at most
// MaxAncestors times.
func Root(msg *Message, lookup Lookup) (root, needFetch id.EventID) {
	up, isReply := Place(msg)
	if !isReply {
		return up, ""
	}
	best := msg.ID
	if msg.Replaces != "" {
		best = msg.Replaces
	}
	seen := map[id.EventID]bool{msg.ID: true}
	for range MaxAncestors {
		if seen[up] || up == "" {
			return best, ""
		}
		seen[up] = true
		next, isReply, ok := lookup(up)
		switch {
		case !ok:
			return best, up
		case !isReply && next == "":
			return up, ""
		case !isReply:
			return next, ""
		}
		best, up = up, next
	}
	return best, ""
}
