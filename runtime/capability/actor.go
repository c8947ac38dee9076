package capability

// ActorKind is what sort of party acts.
type ActorKind string

// The kinds of actor.
const (
	KindUser       ActorKind = "user"
	KindService    ActorKind = "service"
	KindAutomation ActorKind = "automation"
	KindAnonymous  ActorKind = "anonymous"
)

// Actor is on whose authority a call runs, or who decides it. A person in a
// room is their full Matrix ID. A model is never an actor.
type Actor struct {
	ID   string    `json:"id"`
	Kind ActorKind `json:"kind"`
	// Name is for people to read and is never compared.
	Name string `json:"name,omitempty"`
	// Attributes are facts for policies, as known when the call was made.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Valid reports whether a has an id and a known kind.
func (a Actor) Valid() bool {
	if a.ID == "" {
		return false
	}
	switch a.Kind {
	case KindUser, KindService, KindAutomation, KindAnonymous:
		return true
	}
	return false
}

// Is reports whether a and b are the same party: id and kind.
func (a Actor) Is(b Actor) bool { return a.ID == b.ID && a.Kind == b.Kind }
