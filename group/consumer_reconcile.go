package group

// reconcileIn is what the next step of a member towards its target depends on.
type reconcileIn struct {
	member      *consumerMember
	target      partitionSet
	targetEpoch int32
	// wants reports whether the member still subscribes to a topic; partitions of others count as not in its target.
	wants func(topic [16]byte) bool
	// taken reports whether anybody, the member itself included, owns a partition or still has to revoke it.
	taken func(partitionKey) bool
	// owned are the partitions the member says it has; nil: it did not say.
	owned []partitionKey
	// resubscribed: the member changed its subscription with this heartbeat.
	resubscribed bool
}

// reconcile computes the next state of a member (KIP-848, spec groups 5.2): first it gives up what is not in its target
// and says so, then it is given what others have given up. The member itself is returned when nothing changes.
func reconcile(in reconcileIn) *consumerMember {
	m := in.member
	switch {
	case m.state == memberStable && m.epoch == in.targetEpoch:
		if in.resubscribed {
			return in.shrink()
		}
		return m
	case m.state == memberUnrevoked && in.ownsAny(m.revoking):
		if in.resubscribed {
			return in.shrink()
		}
		return m
	}
	epoch := m.epoch
	if m.state == memberUnrevoked {
		epoch = min(epoch+1, in.targetEpoch) // what it had to give up it has given up
	}
	next := in.next(epoch)
	if next.sameCurrent(m) {
		return m
	}
	return next
}

// ownsAny reports whether the member still has any of the partitions; without a report it may have all of them.
func (in *reconcileIn) ownsAny(partitions epochMap) bool {
	if in.owned == nil {
		return true
	}
	for _, p := range in.owned {
		if _, is := partitions[p]; is {
			return true
		}
	}
	return false
}

// shrink takes partitions of topics from the member that it does not subscribe to any more, ahead of a new target.
func (in *reconcileIn) shrink() *consumerMember {
	m := in.member
	keep, revoke := epochMap{}, epochMap{}
	for p, epoch := range m.assigned {
		if in.wants(p.id) {
			keep[p] = epoch
		} else {
			revoke[p] = epoch
		}
	}
	if len(revoke) == 0 {
		return m
	}
	for p, epoch := range m.revoking {
		revoke[p] = epoch
	}
	next := *m
	next.previousEpoch, next.assigned = m.epoch, keep
	if in.ownsAny(revoke) {
		next.state, next.revoking = memberUnrevoked, revoke
	}
	return &next
}

// next is the step from the member's assignment towards its target. epoch is the member's unless the step takes it to
// that of the target: the next one, if partitions asked for were given up and others are to follow.
func (in *reconcileIn) next(epoch int32) *consumerMember {
	m := in.member
	keep, revoke := epochMap{}, epochMap{}
	for p, epoch := range m.assigned {
		if _, is := in.target[p]; is && in.wants(p.id) {
			keep[p] = epoch
		} else {
			revoke[p] = epoch
		}
	}
	next := *m
	next.previousEpoch, next.assigned = m.epoch, keep
	if len(revoke) > 0 && in.ownsAny(revoke) {
		next.epoch, next.state, next.revoking = epoch, memberUnrevoked, revoke
		return &next
	}
	next.epoch, next.state, next.revoking = in.targetEpoch, memberStable, nil
	for p := range in.target {
		if _, kept := keep[p]; kept || !in.wants(p.id) {
			continue
		}
		_, mine := m.revoking[p] // given up by now, and by nobody else owned meanwhile
		if in.taken(p) && !mine {
			next.state = memberUnreleased
			continue
		}
		keep[p] = in.targetEpoch
	}
	return &next
}
