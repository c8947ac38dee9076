package gate

// What tests in gate_test look at from inside.
var (
	Encode  = encode
	Backoff = backoff
)
