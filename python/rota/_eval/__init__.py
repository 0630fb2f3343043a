"""Parts of `rota eval` and `rota.capture`: what they measure, on which caches, and how they show it."""
