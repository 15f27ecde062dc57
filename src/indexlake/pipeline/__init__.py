"""Jobs that move rows down the tiers: plan → tasks → one commit. A job never changes an answer."""
