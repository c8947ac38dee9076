package bridge

import (
	"context"
	"errors"
	"sync"
	"time"
)

// How long and how many rooms the cache remembers.
const (
	roomTTL  = 5 * time.Minute
	roomsMax = 1024
	roomWait = 5 * time.Second
)

// roomCache remembers which rooms are direct chats: two joined people, no name.
// It decides only whether to answer talk, never anything of authority. A change
// of members or name that passes through this process drops the entry; one that
// another replica sees reaches it when the entry runs out, after five minutes.
// It is safe for concurrent use.
type roomCache struct {
	mu sync.Mutex
	m  map[string]roomEntry
}

type roomEntry struct {
	direct bool
	until  time.Time
}

func newRoomCache() *roomCache { return &roomCache{m: make(map[string]roomEntry)} }

func (c *roomCache) forget(room string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, room)
}

// direct reports whether room is a direct chat. If that cannot be told, it is
// not: the bot then stays quiet.
func (c *roomCache) direct(ctx context.Context, hs Homeserver, room string, now time.Time) bool {
	c.mu.Lock()
	e, ok := c.m[room]
	c.mu.Unlock()
	if ok && now.Before(e.until) {
		return e.direct
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	members, err := hs.JoinedMembers(ctx, room)
	if err != nil {
		return false
	}
	e = roomEntry{until: now.Add(roomTTL)}
	if len(members) == 2 {
		_, err := hs.State(ctx, room, typeRoomName, "")
		if err != nil && !errors.Is(err, ErrNoState) {
			return false
		}
		e.direct = errors.Is(err, ErrNoState)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= roomsMax {
		clear(c.m) // rare, and only costs two requests a room
	}
	c.m[room] = e
	return e.direct
}
