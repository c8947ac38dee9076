package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

const (
	roomName  = "Ops"
	yes, no   = "✅", "❌"
	setTopic  = "room.topic.set"
	invite    = "room.invite"
	quietTime = 1500 * time.Millisecond // how long "nothing happens" is watched

	firstTopic  = "Maintenance tonight at 22:00"
	secondTopic = "Maintenance is over"
	lateTopic   = "Too late"
)

// story is the conversation. Each step tells it as alice sees it and checks it.
type story struct {
	*scene
	w *world

	asked map[string]id.EventID // what opened each thread, by step
}

func newStory(w *world, t *transcript, c *checks) *story {
	return &story{scene: newScene(t, c), w: w, asked: map[string]id.EventID{}}
}

// play returns an error when the story cannot go on; what merely differs is
// counted in checks.
func (s *story) play(ctx context.Context) error {
	for _, step := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"A room", s.gather},
		{"What needs nobody's yes", s.plain},
		{"The asker's own yes does not count, the admin's does", s.approved},
		{"The admin says no", s.rejected},
		{"The bot is killed while a question is open", s.restarted},
		{"Nobody answers", s.expired},
		{"Looking back", s.lookBack},
	} {
		s.to.title(step.title)
		err := step.play(ctx)
		s.tellRest()
		if err != nil {
			s.to.line(1, "✗ the conversation ends here")
			return err
		}
	}
	return nil
}

// gather makes the room and waits for everybody.
func (s *story) gather(ctx context.Context) error {
	s.alice, s.bob = s.w.alice, s.w.bob
	quiet, err := s.makeRoom(ctx, "Heartbeat", botID)
	if err != nil {
		return err
	}
	if _, err := s.alice.await(ctx, "the bot joins a first room", "", membership(quiet, botID, event.MembershipJoin)); err != nil {
		return err
	}
	s.w.beat = beatIn(ctx, s.alice, quiet)
	if s.room, err = s.makeRoom(ctx, roomName, s.bob.id, botID); err != nil {
		return err
	}
	s.to.line(0, fmt.Sprintf("%s makes the room %q, where %s has power 100, %s and %s have 50,", s.alice.id, roomName, s.alice.id, s.bob.id, botID))
	s.to.line(0, "and invites both.")
	if _, err := s.bob.client.JoinRoomByID(ctx, s.room); err != nil {
		return fmt.Errorf("bob joins: %w", err)
	}
	for _, who := range []id.UserID{s.bob.id, botID} {
		if _, err := s.alice.await(ctx, string(who)+" joins", "", membership(s.room, who, event.MembershipJoin)); err != nil {
			return err
		}
		s.done(fmt.Sprintf("%s joined", who))
	}
	return nil
}

// makeRoom makes a private room of alice in which everybody invited has half
// her power.
func (s *story) makeRoom(ctx context.Context, name string, guests ...id.UserID) (id.RoomID, error) {
	users := map[id.UserID]int{s.alice.id: 100}
	for _, who := range guests {
		users[who] = 50
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.alice.client.CreateRoom(ctx, &mautrix.ReqCreateRoom{
		Name: name, Preset: "private_chat", Visibility: "private", Invite: guests,
		PowerLevelOverride: &event.PowerLevelsEventContent{Users: users},
	})
	if err != nil {
		return "", fmt.Errorf("alice makes a room: %w", err)
	}
	return resp.RoomID, nil
}

// plain asks for what runs at once.
func (s *story) plain(ctx context.Context) error {
	help, err := s.say(ctx, s.bob, "!help")
	if err != nil {
		return err
	}
	answer, err := s.answer(ctx, help, "an answer to !help in a thread", "", func(*event.Event) bool { return true })
	if err != nil {
		return err
	}
	s.that(strings.Contains(body(answer), "!run"), "the answer, in a thread on his message, tells of !run", "a text that names !run", body(answer))

	now, err := s.say(ctx, s.bob, "!run time.now")
	if err != nil {
		return err
	}
	answer, err = s.answer(ctx, now, "the time in a thread", "", func(*event.Event) bool { return true })
	if err != nil {
		return err
	}
	year := time.Now().UTC().Format("2006")
	s.that(strings.Contains(body(answer), year), "the answer, in a thread on his message, is the time", "a time of this year", body(answer))
	return nil
}

// approved is the main job, with the asker's own yes before the admin's.
func (s *story) approved(ctx context.Context) error {
	ask, err := s.say(ctx, s.bob, fmt.Sprintf("!run %s topic=%q", setTopic, firstTopic))
	if err != nil {
		return err
	}
	s.asked["approved"] = ask
	c, err := s.card(ctx, ask, setTopic, firstTopic)
	if err != nil {
		return err
	}
	own, err := s.react(ctx, s.bob, c, yes)
	if err != nil {
		return err
	}
	if err := s.nothing(ctx, c, own, "the asker's own ✅ changes nothing"); err != nil {
		return err
	}
	if err := s.topicIs(ctx, ""); err != nil {
		return err
	}
	s.tellRest()
	return s.decideYes(ctx, c, firstTopic)
}

// decideYes has alice approve a change of the topic and sees it through.
func (s *story) decideYes(ctx context.Context, c *card, topic string) error {
	said, err := s.react(ctx, s.alice, c, yes)
	if err != nil {
		return err
	}
	if _, err := s.await(ctx, fmt.Sprintf("the topic becomes %q", topic), said, topicEvent(s.room, topic)); err != nil {
		return err
	}
	if err := s.topicIs(ctx, topic); err != nil {
		return err
	}
	if err := s.closed(ctx, c, said, "approved", s.alice.id); err != nil {
		return err
	}
	_, err = s.answer(ctx, c.root, "the result in the thread", said, func(ev *event.Event) bool {
		return strings.Contains(body(ev), setTopic) || strings.Contains(body(ev), topic)
	})
	if err != nil {
		return err
	}
	s.done("the result is in the thread")
	return nil
}

// rejected has the admin say no.
func (s *story) rejected(ctx context.Context) error {
	carol := s.w.carol.id
	ask, err := s.say(ctx, s.bob, fmt.Sprintf("!run %s user=%s", invite, carol))
	if err != nil {
		return err
	}
	s.asked["rejected"] = ask
	c, err := s.card(ctx, ask, invite, carol.String())
	if err != nil {
		return err
	}
	said, err := s.react(ctx, s.alice, c, no)
	if err != nil {
		return err
	}
	if err := s.closed(ctx, c, said, "rejected", s.alice.id); err != nil {
		return err
	}
	if _, err = s.answer(ctx, ask, "a word in the thread that it was rejected", said, func(*event.Event) bool { return true }); err != nil {
		return err
	}
	s.done("the thread is told")
	return s.notInvited(ctx, carol)
}

// restarted kills the bot while a question is open; what follows shows that
// nothing was lost and nothing ran twice.
func (s *story) restarted(ctx context.Context) error {
	ask, err := s.say(ctx, s.bob, fmt.Sprintf("!run %s topic=%q", setTopic, secondTopic))
	if err != nil {
		return err
	}
	s.asked["restarted"] = ask
	c, err := s.card(ctx, ask, setTopic, secondTopic)
	if err != nil {
		return err
	}
	resume := s.w.beat.pause()
	s.w.bot.kill()
	err = s.w.startBot(ctx, shortExpiry)
	resume()
	if err != nil {
		return err
	}
	s.to.line(0, fmt.Sprintf("(the bot is killed with SIGKILL and started again; new questions now wait %s)", shortExpiry))
	return s.decideYes(ctx, c, secondTopic)
}

// expired leaves a question open until its time is over.
func (s *story) expired(ctx context.Context) error {
	ask, err := s.say(ctx, s.bob, fmt.Sprintf("!run %s topic=%q", setTopic, lateTopic))
	if err != nil {
		return err
	}
	s.asked["expired"] = ask
	c, err := s.card(ctx, ask, setTopic, lateTopic)
	if err != nil {
		return err
	}
	s.to.line(1, "(nobody answers)")
	if err := s.closed(ctx, c, c.event.ID, "expired", ""); err != nil {
		return err
	}
	late, err := s.react(ctx, s.alice, c, yes)
	if err != nil {
		return err
	}
	if err := s.nothing(ctx, c, late, "a late ✅ changes nothing"); err != nil {
		return err
	}
	return s.topicIs(ctx, secondTopic)
}

// lookBack counts what must have happened once, now that anything late had time
// to come.
func (s *story) lookBack(ctx context.Context) error {
	topics := s.alice.all(func(ev *event.Event) bool { return ev.RoomID == s.room && ev.Type == event.StateTopic })
	want := fmt.Sprintf("%q, then %q, both by %s", firstTopic, secondTopic, botID)
	ok := len(topics) == 2 && topics[0].Sender == botID && topics[1].Sender == botID &&
		topics[0].Content.AsTopic().Topic == firstTopic && topics[1].Content.AsTopic().Topic == secondTopic
	s.that(ok, "the topic was set twice, once for each yes that counted", want, summaryOfTopics(topics))

	for _, thread := range []struct {
		step     string
		min, max int
		what     string
	}{
		{"approved", 2, 3, "the first question's thread has its card and one result"}, // and perhaps a hint to the asker
		{"rejected", 2, 2, "the refused question's thread has its card and one answer"},
		{"restarted", 2, 2, "the question that met a crash has one card and one result"},
		{"expired", 1, 3, "the expired question's thread has one card"}, // and perhaps a word on it, and one to who came late
	} {
		posts := s.alice.all(inThread(s.room, s.asked[thread.step]))
		s.that(thread.min <= len(posts) && len(posts) <= thread.max, thread.what,
			fmt.Sprintf("%d to %d messages of the bot", thread.min, thread.max), fmt.Sprintf("%d: %s", len(posts), summary(posts)))
	}
	stray := s.alice.all(func(ev *event.Event) bool {
		return isPost(ev) && ev.RoomID == s.room && ev.Sender == botID && relation(ev).GetThreadParent() == ""
	})
	s.that(len(stray) == 0, "every message of the bot is in a thread", "none beside", summary(stray))
	if err := s.notInvited(ctx, s.w.carol.id); err != nil {
		return err
	}
	s.w.bot.measure()
	s.figures(s.w.bot)
	return nil
}

// topicIs compares the topic in the room's state; empty means that there is
// none.
func (s *story) topicIs(ctx context.Context, want string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var got event.TopicEventContent
	err := s.alice.client.StateEvent(ctx, s.room, event.StateTopic, "", &got)
	if err != nil && !errors.Is(err, mautrix.MNotFound) {
		return fmt.Errorf("alice asks for the topic: %w", err)
	}
	what := fmt.Sprintf("the room's topic is %q", want)
	if want == "" {
		what = "the room has no topic"
	}
	s.equal(what, want, got.Topic)
	return nil
}

// notInvited checks that who never had anything to do with the room.
func (s *story) notInvited(ctx context.Context, who id.UserID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var got event.MemberEventContent
	err := s.alice.client.StateEvent(ctx, s.room, event.StateMember, who.String(), &got)
	if err != nil && !errors.Is(err, mautrix.MNotFound) {
		return fmt.Errorf("alice asks for %s's membership: %w", who, err)
	}
	s.equal(fmt.Sprintf("%s is not invited", who), "", string(got.Membership))
	return nil
}

func summaryOfTopics(events []*event.Event) string {
	var out []string
	for _, ev := range events {
		out = append(out, fmt.Sprintf("%q by %s", ev.Content.AsTopic().Topic, ev.Sender))
	}
	return strings.Join(out, ", then ")
}
