#pragma once

// Everything public is in rota::ROTA_ABI. The namespace is inline, so that users do not write it, and keeps two
// versions of the library apart at link time. It changes with the shared library's number (SOVERSION).
#define ROTA_ABI v0

// Symbols are hidden unless marked. On ELF and Mach-O the mark is the same for building and for using the library.
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
