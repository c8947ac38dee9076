package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge"
	"moothall/store"
)

// How long an answer of the homeserver is good for, and how long one is waited
// for.
const (
	whoamiFresh = 10 * time.Second
	whoamiWait  = 5 * time.Second
	greetMax    = 30 * time.Second
)

// health answers /live and /ready. Live means that the process serves; ready
// that the database can be written and the homeserver knows the bot.
type health struct {
	store  *store.Store
	client *bridge.Client
	bot    string

	mu   sync.Mutex
	seen time.Time // when the homeserver last said who we are
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "live") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if err := h.ready(r.Context()); err != nil {
			zerolog.Ctx(r.Context()).Debug().Err(err).Msg("Not ready")
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ready")
	})
	return mux
}

func (h *health) ready(ctx context.Context) error {
	if err := h.store.Writable(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return h.known(ctx)
}

// known asks the homeserver who we are, unless it said so a moment ago.
func (h *health) known(ctx context.Context) error {
	h.mu.Lock()
	fresh := time.Since(h.seen) < whoamiFresh
	h.mu.Unlock()
	if fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, whoamiWait)
	defer cancel()
	who, err := h.client.Whoami(ctx)
	if err != nil {
		return fmt.Errorf("homeserver: %w", err)
	}
	if who != h.bot {
		return fmt.Errorf("homeserver: it takes us for %s, not for %s", who, h.bot)
	}
	h.mu.Lock()
	h.seen = time.Now()
	h.mu.Unlock()
	return nil
}

// greet makes the bot's account and profile what the configuration says. A
// homeserver that is down is asked again with growing pauses; a refused token
// ends the program.
func (s *service) greet(ctx context.Context) error {
	log := zerolog.Ctx(ctx)
	for wait := 250 * time.Millisecond; ; wait = min(wait*2, greetMax) {
		err := s.introduce(ctx)
		if err == nil {
			log.Info().Str("bot", s.cfg.BotID()).Msg("The homeserver knows the bot")
			return nil
		}
		if e, ok := errors.AsType[*bridge.APIError](err); ok && refusedToken(e) {
			return withCode(exitToken, fmt.Errorf(
				"the homeserver at %s does not accept the as_token (%w): give it the file that `moothall registration` prints and restart it",
				s.cfg.Homeserver.Address, err))
		}
		log.Warn().Err(err).Dur("wait", wait).Str("homeserver", s.cfg.Homeserver.Address).Msg("The homeserver does not answer, trying again")
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

func refusedToken(e *bridge.APIError) bool {
	return e.Code == "M_UNKNOWN_TOKEN" || e.Code == "M_MISSING_TOKEN"
}

func (s *service) introduce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := s.client.Register(ctx, s.cfg.AppService.Bot.Localpart); err != nil {
		return fmt.Errorf("register the bot: %w", err)
	}
	if err := s.health.known(ctx); err != nil {
		return err
	}
	if err := s.client.SetProfile(ctx, s.cfg.BotID(), s.cfg.AppService.Bot.DisplayName, s.cfg.AppService.Bot.Avatar); err != nil {
		return fmt.Errorf("set the bot's profile: %w", err)
	}
	return nil
}
