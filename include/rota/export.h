#pragma once

// All that is public lives in rota::ROTA_ABI, which is inline: nobody writes it, and two versions of the library do not
// meet at link time. It changes with the number of the shared library.
#define ROTA_ABI v0

// Symbols are hidden unless marked; on ELF and Mach-O one attribute serves building and using.
#if defined(_WIN32)
#if defined(ROTA_BUILDING_SHARED)
#define ROTA_API __declspec(dllexport)
#elif defined(ROTA_USING_SHARED)
#define ROTA_API __declspec(dllimport)
#else
#define ROTA_API
#endif
#else
#define ROTA_API [[gnu::visibility("default")]]
#endif
